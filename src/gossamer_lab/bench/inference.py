"""Benchmark `inference`: the speed of dense and shrunk networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gossamer.measurement import measure
from gossamer.shrinking import shrink
from gossamer_lab.bench.alternatives import NOT_INSTALLED, torch_pruning_removal
from gossamer_lab.bench.engines import Call, Engine, in_onnx_runtime, in_pytorch
from gossamer_lab.bench.models import Block, lenet, perceptron, residual_network
from gossamer_lab.bench.result import Machine, Result, Value
from gossamer_lab.bench.timing import Timing, time_interleaved

__all__ = ["CASES", "Case", "inference"]

_Removed = dict[nn.Module, list[int]]


@dataclass(frozen=True)
class Case:
    """A network with dead output channels, and the network built without them."""

    name: str
    build: Callable[[], nn.Module]
    build_small: Callable[[], nn.Module]
    removed: Callable[[nn.Module], _Removed]
    image: tuple[int, ...]


def _lenet_removed(model: nn.Module) -> _Removed:
    kept = {"0": 6, "3": 12, "7": 50}
    return {model.get_submodule(name): _after(count, model.get_submodule(name)) for name, count in kept.items()}


def _residual_removed(model: nn.Module) -> _Removed:
    blocks = [module for module in model.modules() if isinstance(module, Block)]
    return {block.first: _after(block.first.out_channels // 4, block.first) for block in blocks}


def _half_of_residual(model: nn.Module) -> _Removed:
    """Half of all channels: those inside the blocks, and those coupled by the shortcuts."""
    stem, stem_norm = model.get_submodule("0"), model.get_submodule("1")
    removed = {stem: _half(stem), stem_norm: _half(stem)}
    for block in (module for module in model.modules() if isinstance(module, Block)):
        removed |= dict.fromkeys((block.first, block.first_norm), _half(block.first))
        removed |= dict.fromkeys((block.second, block.second_norm, *_shortcut_layers(block)), _half(block.second))
    return removed


def _shortcut_layers(block: Block) -> list[nn.Module]:
    return list(block.shortcut) if isinstance(block.shortcut, nn.Sequential) else []


def _half_of_perceptron(model: nn.Module) -> _Removed:
    *hidden, _ = (module for module in model.modules() if isinstance(module, nn.Linear))
    return {layer: _half(layer) for layer in hidden}


def _half(layer: nn.Module) -> list[int]:
    return _after(layer.get_parameter("weight").shape[0] // 2, layer)


def _after(kept: int, layer: nn.Module) -> list[int]:
    """All output channels but `kept`, drawn at random, because those that training keeps are not contiguous."""
    channels = layer.get_parameter("weight").shape[0]
    return torch.randperm(channels, generator=torch.Generator().manual_seed(0))[kept:].tolist()


CASES = (
    Case("LeNet-5, 6-12-50 of 20-50-500", lenet, lambda: lenet(6, 12, 50), _lenet_removed, (1, 28, 28)),
    Case(
        "ResNet-18, 1/4 of the inner channels",
        residual_network,
        lambda: residual_network(inner=0.25),
        _residual_removed,
        (3, 64, 64),
    ),
    Case(
        "ResNet-18, half of all channels",
        residual_network,
        lambda: residual_network(width=32),
        _half_of_residual,
        (3, 64, 64),
    ),
    Case("perceptron, 2048 of 4096", perceptron, lambda: perceptron(2048), _half_of_perceptron, (784,)),
)


def inference(cases: Sequence[Case] = CASES, batches: Sequence[int] = (1, 64), seconds: float = 2.0) -> Result:
    """Time forward passes of the dense network with zeros, of the shrunk one, and of others of the same size.

    Args:
        cases: Networks with dead channels.
        batches: Batch sizes.
        seconds: Time budget per candidate.
    """
    rows = [row for case in cases for row in _rows(case, batches, seconds)]
    return Result(
        name="inference",
        title="inference of dense and shrunk networks",
        note=(
            "ms: shrunk network. dense, built small, Torch-Pruning: their time relative to it. built small: the same "
            "network built without the dead channels. Torch-Pruning: the same channels removed by that library. MAC "
            "ratio: MACs of the dense network over those of the shrunk one."
        ),
        machine=Machine.here(),
        rows=tuple(rows),
    )


def _rows(case: Case, batches: Sequence[int], seconds: float) -> list[dict[str, Value]]:
    torch.manual_seed(0)
    dense = case.build().eval()
    _zero_channels(dense, case.removed(dense))
    example = torch.randn(2, *case.image)
    networks = {"dense": dense, "shrunk": shrink(dense, example).eval(), "built small": case.build_small().eval()}
    mac_ratio = measure(dense, example).total.macs / measure(networks["shrunk"], example).total.macs
    theirs = torch_pruning_removal(dense, example, case.removed)
    if theirs is not None:
        networks["Torch-Pruning"] = theirs.eval()

    rows = []
    for batch in batches:
        images = torch.randn(batch, *case.image)
        for engine, name in ((in_pytorch, "PyTorch"), (in_onnx_runtime, "ONNX Runtime")):
            if calls := _calls(engine, networks, images):
                rows.append(_row(case.name, batch, name, calls, seconds))
    return [{**row, "MAC ratio": mac_ratio} for row in rows]


@torch.no_grad()
def _zero_channels(model: nn.Module, removed: _Removed) -> None:
    """Zero the weights of the channels and the parameters of their batch norms."""
    norms = {block.first: block.first_norm for block in model.modules() if isinstance(block, Block)}
    for layer, channels in removed.items():
        for parameter in (*layer.parameters(), *(norms[layer].parameters() if layer in norms else ())):
            parameter[channels] = 0.0


def _row(
    name: str, batch: int, engine: str, candidates: dict[str, Callable[[], object]], seconds: float
) -> dict[str, Value]:
    times: dict[str, Timing] = time_interleaved(candidates, seconds=seconds)
    own = times["shrunk"].median
    row: dict[str, Value] = {"network": name, "batch": batch, "engine": engine, **times["shrunk"].cells()}
    for other in ("dense", "built small", "Torch-Pruning"):
        row[other] = times[other].median / own if other in times else NOT_INSTALLED
    return row


def _calls(engine: Engine, networks: dict[str, nn.Module], images: Tensor) -> dict[str, Call]:
    calls = {name: engine(network, images, torch.get_num_threads()) for name, network in networks.items()}
    return {name: call for name, call in calls.items() if call is not None}
