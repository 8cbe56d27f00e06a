"""Every unit that a plain rule, applied unit by unit, finds removable is removed (and no other).

A graph does not depend on the weights: one network is exported once, and planned with many different zeros.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gossamer.example import Call
from gossamer.shrinking import shrink
from gossamer.shrinking.analyse import analyse
from gossamer.shrinking.decide import liveness, make_plan, weights_at_best
from gossamer.shrinking.trace import trace

Kept = dict[str, dict[int, Tensor]]
Outputs = Callable[[str], int]


class Chain(nn.Module):
    def __init__(self, widths: list[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(widths))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = torch.tanh(layer(x))
        return self.layers[-1](x)


class ResidualChain(nn.Module):
    def __init__(self, width: int, hidden: int, depth: int) -> None:
        super().__init__()
        self.stem = nn.Linear(3, width)
        self.ups = nn.ModuleList(nn.Linear(width, hidden) for _ in range(depth))
        self.downs = nn.ModuleList(nn.Linear(hidden, width) for _ in range(depth))
        self.head = nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for up, down in zip(self.ups, self.downs, strict=True):
            x = x + down(torch.tanh(up(x)))
        return self.head(x)


def with_zeros(
    make: Callable[[], nn.Module], densities: list[float], example: Tensor, count: int
) -> Iterator[tuple[Any, Outputs]]:
    """A network with random zeros, so many times, and how many outputs its layers have in the plan.

    The last one is shrunk: that gives what the plan says.
    """
    model = make().to(example.dtype)
    traced = trace(model, Call((example,), {}))
    for seed in range(count):
        torch.manual_seed(seed)
        model.load_state_dict(make().to(example.dtype).state_dict())
        zero_elements(model, densities[seed % len(densities)])
        found, _ = make_plan(analyse(model, traced))

        def outputs(layer: str, kept: Kept = found.kept) -> int:
            index = kept.get(f"{layer}.weight", {}).get(0)
            return model.get_parameter(f"{layer}.weight").size(0) if index is None else len(index)

        yield model, outputs
    small = shrink(model, example)
    layers = [name for name, layer in model.named_modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
    assert [small.get_parameter(f"{name}.weight").size(0) for name in layers] == [outputs(name) for name in layers]


def zero_elements(model: nn.Module, density: float) -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("weight"):
                parameter[torch.rand_like(parameter) > density] = 0
                parameter[torch.rand(parameter.size(0)) > 0.8] = 0


def chain_survivors(model: Chain) -> list[int]:
    """Unit by unit: constant if it reads only constants, unread if no survivor reads it."""
    weights = [layer.weight.tolist() for layer in model.layers]
    constant = [[False] * len(weights[0][0])]
    for weight in weights:
        constant.append([all(w == 0 or c for w, c in zip(row, constant[-1], strict=True)) for row in weight])
    survives = [[True] * len(weights[-1])]
    for level in range(len(weights) - 1, 0, -1):
        readers = [row for row, alive in zip(weights[level], survives[0], strict=True) if alive]
        count = len(weights[level][0])
        read = [any(row[unit] != 0 for row in readers) for unit in range(count)]
        survives.insert(0, [read[u] and not constant[level][u] for u in range(count)])
    return [max(1, sum(level)) for level in survives[:-1]]


def residual_survivors(model: ResidualChain) -> tuple[int, list[int]]:
    """The same with one stream: stream units are unified over all depths, constant up to their first change."""
    stem, head = model.stem.weight.tolist(), model.head.weight.tolist()
    ups = [layer.weight.tolist() for layer in model.ups]
    downs = [layer.weight.tolist() for layer in model.downs]
    stream = [[all(w == 0 for w in row) for row in stem]]
    inner = []
    for up, down in zip(ups, downs, strict=True):
        quiet = [all(w == 0 or c for w, c in zip(row, stream[-1], strict=True)) for row in up]
        inner.append(quiet)
        added = [all(w == 0 or c for w, c in zip(row, quiet, strict=True)) for row in down]
        stream.append([a and b for a, b in zip(stream[-1], added, strict=True)])
    width, depth = len(stem), len(ups)
    alive = [any(row[unit] != 0 for row in head) and not stream[depth][unit] for unit in range(width)]
    while True:
        hidden = []
        for level in range(depth):
            units = range(len(ups[level]))
            needed = [any(downs[level][s][u] != 0 and alive[s] for s in range(width)) for u in units]
            hidden.append([needed[u] and not inner[level][u] for u in units])
        before = list(alive)
        for level in range(depth):
            for unit in range(width):
                read = any(ups[level][h][unit] != 0 and hidden[level][h] for h in range(len(ups[level])))
                alive[unit] = alive[unit] or (read and not stream[level][unit])
        if alive == before:
            return max(1, sum(alive)), [max(1, sum(level)) for level in hidden]


def test_chain_is_as_small_as_the_oracle_says() -> None:
    for model, outputs in with_zeros(lambda: Chain([3, 7, 6, 5, 2]), [0.15, 0.3, 0.6], torch.randn(2, 3), 24):
        assert [outputs(f"layers.{level}") for level in range(3)] == chain_survivors(model)


def test_residual_network_is_as_small_as_the_oracle_says() -> None:
    for model, outputs in with_zeros(lambda: ResidualChain(6, 5, 3), [0.15, 0.3, 0.6], torch.randn(2, 3), 24):
        width, hidden = residual_survivors(model)
        assert outputs("stem") == width
        assert [outputs(f"ups.{level}") for level in range(3)] == hidden


class Branches(nn.Module):
    """A padded convolution, two branches side by side (one without padding), a padded convolution, a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 6, 3, padding=1)
        self.free = nn.Conv2d(6, 5, 1)
        self.padded = nn.Conv2d(6, 4, 3, padding=1)
        self.joined = nn.Conv2d(9, 5, 3, padding=1)
        self.hidden = nn.Linear(5 * 16, 6)
        self.head = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        x = torch.cat([torch.relu(self.free(x)), torch.relu(self.padded(x))], 1)
        x = torch.relu(self.joined(x)).flatten(1)
        return self.head(torch.relu(self.hidden(x)))


def constants(layer: nn.Module, inputs: list[float | None], places: int = 1) -> list[float | None]:
    """The value of each output unit after relu if it is constant: unit by unit, input by input."""
    found: list[float | None] = []
    padded = isinstance(layer, nn.Conv2d) and layer.padding != (0, 0)
    for row, bias in zip(layer.weight.detach(), layer.bias.tolist(), strict=True):
        value: float | None = bias
        for taps, constant in zip(row.reshape(len(inputs), -1 if places == 1 else places), inputs, strict=True):
            if not bool((taps != 0).any()):
                continue
            if constant is None or (padded and constant != 0):
                value = None
                break
            value += float(taps.sum()) * constant
        found.append(None if value is None else max(value, 0.0))
    return found


def survivors(model: Branches) -> dict[str, int]:
    """Units that a survivor reads and that cannot be replaced by a constant in its bias."""
    stem = constants(model.stem, [None, None])
    branches = constants(model.free, stem) + constants(model.padded, stem)
    joined = constants(model.joined, branches)
    hidden = constants(model.hidden, joined, places=16)

    def is_read(layer: nn.Module, alive: list[bool], unit: int, places: int = 1) -> bool:
        weight = layer.weight.detach()
        columns = weight.reshape(len(weight), -1, places if isinstance(layer, nn.Linear) else weight[0, 0].numel())
        return any(keeps and bool((columns[row, unit] != 0).any()) for row, keeps in enumerate(alive))

    hidden_alive = [is_read(model.head, [True, True], u) and hidden[u] is None for u in range(6)]
    joined_alive = [is_read(model.hidden, hidden_alive, u, 16) and joined[u] is None for u in range(5)]
    branch_alive = [is_read(model.joined, joined_alive, u) and branches[u] != 0.0 for u in range(9)]
    free, padded = branch_alive[:5], branch_alive[5:]
    stem_alive = [
        (is_read(model.free, free, u) and stem[u] is None) or (is_read(model.padded, padded, u) and stem[u] != 0.0)
        for u in range(6)
    ]
    found = {"stem": stem_alive, "free": free, "padded": padded, "joined": joined_alive, "hidden": hidden_alive}
    return {name: max(1, sum(alive)) for name, alive in found.items()}


def test_convolutions_side_by_side_are_as_small_as_the_oracle_says() -> None:
    example = torch.randn(2, 2, 4, 4, dtype=torch.float64)
    for model, outputs in with_zeros(Branches, [0.02, 0.1, 0.3], example, 30):
        layers = ("stem", "free", "padded", "joined", "hidden")
        assert {name: outputs(name) for name in layers} == survivors(model)


@pytest.mark.parametrize("few", [0, 100])
def test_groups_at_once_and_one_by_one_give_the_same_plan(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    grouped = (nn.Conv2d(8, 16, 1, groups=8), nn.ReLU(), nn.Conv2d(16, 8, 1, groups=8, bias=False), nn.ReLU())
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU(), *grouped, nn.Flatten(), nn.Linear(8, 2))
    zero_elements(model, 0.5)
    facts = analyse(model, trace(model, Call((torch.randn(2, 3, 1, 1),), {})))
    monkeypatch.setattr(liveness, "_FEW_GROUPS", few)
    found, _ = make_plan(facts)
    assert not found.empty
    monkeypatch.undo()
    assert str(make_plan(facts)[0]) == str(found)
    assert weights_at_best(facts) == found.weights_after
