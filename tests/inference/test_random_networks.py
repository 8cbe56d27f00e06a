"""Random networks: every way to run the lowered network agrees with PyTorch."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random

import pytest
import torch
from torch import Tensor, fx, nn

from gossamer.example import Call
from gossamer.inference.lowering import lower
from gossamer.inference.program import Program
from gossamer.inference.rounding import float32_errors, in_float64
from gossamer.inference.tracing import TENSOR, Traced, first_sample, trace

from .libraries import MACHINES, ways
from .networks import Recipe, build

NETWORKS = 300
LIBRARIES = 6
EXPORTED_AT_ONCE = 10
BATCH = 19  # a whole vector of samples and some more, for each number of lanes
TOLERANCE = 1e-5
LARGEST = 1e-3  # a network whose own error is larger says nothing

OPERATORS = """
linear conv1d conv2d conv_transpose1d conv_transpose2d batch_norm layer_norm group_norm rms_norm max_pool1d max_pool2d
avg_pool1d avg_pool2d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_max_pool2d relu leaky_relu gelu silu sigmoid
tanh hardswish hardsigmoid softmax add sub mul div cat stack split_with_sizes chunk slice flatten view permute
transpose mean amax embedding matmul scaled_dot_product_attention upsample_nearest2d upsample_bilinear2d
upsample_linear1d lstm gru
"""


def recipes(count: int, seed: int, blocks: int) -> list[Recipe]:
    draw = Random(seed)
    return [
        Recipe(
            kind=draw.choice(["image", "image", "image", "signal", "tokens", "features"]),
            blocks=draw.randint(1, blocks),
            seed=draw.randrange(2**31),
            density=draw.choice([0.05, 0.3, 0.6, 0.9, 1.0]),
        )
        for _ in range(count)
    ]


@dataclass(frozen=True)
class Lowered:
    """A random network: its program, a batch of inputs, and its outputs in float64, as exact as PyTorch can be."""

    recipe: Recipe
    program: Program
    operators: frozenset[str]
    inputs: Tensor
    wanted: Tensor
    model: nn.Module

    @cached_property
    def magnified(self) -> float:
        """How far PyTorch in float32 may be from `wanted`, relative to it, as the last bits fall."""
        (error,) = float32_errors(self.model, Call((self.inputs,), {}), [self.wanted])
        return error / max(self.wanted.abs().max().item(), 1e-30)

    def accepts(self, difference: float) -> bool:
        """Whether outputs agree: to 1e-5, or to twice what PyTorch itself does where rounding is magnified.

        An example is a LayerNorm over two elements a and b: its outputs are about ±1, with the sign of a - b. Where a
        and b are almost equal, an output changes as much as PyTorch's own, in float32 and with other last bits, does.
        """
        return difference <= TOLERANCE or difference <= 2 * self.magnified <= LARGEST


class Together(nn.Module):
    """Networks side by side, each with an input and an output of its own."""

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return tuple(network(x) for network, x in zip(self.networks, inputs, strict=True))


def separated(traced: Traced) -> list[Traced]:
    """The graph of each output by itself."""
    found = []
    for output in traced.outputs:
        needed, waiting = {output}, [output]
        while waiting:
            new = set(waiting.pop().all_input_nodes) - needed
            needed |= new
            waiting += new
        graph, copies = fx.Graph(), {}
        for node in traced.graph.nodes:
            if node in needed:
                copies[node] = graph.node_copy(node, copies.__getitem__)
        tensors = {copies[node]: tensor for node, tensor in traced.tensors.items() if node in needed}
        found.append(Traced(graph, tensors, (copies[output],), (TENSOR,), traced.structure))
    return found


def draw_inputs(recipe: Recipe, example: Tensor) -> Tensor:
    torch.manual_seed(recipe.seed)
    if example.is_floating_point():
        return torch.randn(BATCH, *example.shape[1:])
    return torch.randint(0, 11, (BATCH, *example.shape[1:]))


def lowered(recipes: Sequence[Recipe]) -> list[Lowered]:
    """The networks of these recipes; several are exported at once, because that takes half of the time."""
    found = []
    for start in range(0, len(recipes), EXPORTED_AT_ONCE):
        chosen = recipes[start : start + EXPORTED_AT_ONCE]
        models, examples = zip(*map(build, chosen), strict=True)
        traced = trace(Together(models), first_sample(Call(examples, {})))
        for recipe, model, example, own in zip(chosen, models, examples, separated(traced), strict=True):
            inputs = draw_inputs(recipe, example)
            (wanted,) = in_float64(model, Call((inputs,), {}))
            targets = [str(node.target) for node in own.graph.nodes]
            operators = frozenset(target.split(".")[1] for target in targets if "aten" in target)
            found.append(Lowered(recipe, lower(own), operators, inputs, wanted, model))
    return found


def relative_difference(found: Tensor, wanted: Tensor) -> float:
    size = wanted.abs().max().item()
    return ((found - wanted).abs().max() / max(size, 1e-30)).item() if size else found.abs().max().item()


@pytest.fixture(scope="module")
def networks() -> Sequence[Lowered]:
    return lowered(recipes(NETWORKS, seed=0, blocks=3))


@pytest.mark.parametrize("number", range(LIBRARIES))
def test_random_networks(networks: Sequence[Lowered], number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("clang"):  # in half the time of gcc, which compiles everything in test_operations
        monkeypatch.setenv("CC", "clang")
    chosen = networks[number::LIBRARIES]
    compiled = ways([network.program for network in chosen], MACHINES[number % len(MACHINES)])
    for network, each in zip(chosen, compiled, strict=True):
        for name, run in each.items():
            (output,) = run([network.inputs])
            difference = relative_difference(output.reshape(network.wanted.shape), network.wanted)
            assert network.accepts(difference), f"{network.recipe} differs by {difference:.2e} as {name}"


def test_every_operation_occurs(networks: Sequence[Lowered]) -> None:
    found = frozenset().union(*(network.operators for network in networks))
    assert sorted({*OPERATORS.split()} - found) == []
