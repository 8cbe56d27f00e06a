"""Exports: what is left out of them to be quick does not change the graph, and one that is of no use is stopped."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch import Tensor, fx, nn
from torch._subclasses import FakeTensor

from gossamer.errors import GossamerError
from gossamer.example import Call
from gossamer.shrinking.trace import export, trace


class Branching(nn.Module):
    """Has a branch on the length before its first layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.first(x * 2 if x.shape[1] < 6 else x)))


CALL = Call((torch.zeros(2, 5, 4),), {})
FREE = [{0, 1}]


def nodes(graph: fx.Graph) -> list[str]:
    return [f"{node.format_node()} {getattr(node.meta.get('val'), 'shape', '')}" for node in graph.nodes]


@pytest.mark.parametrize("symbolic", [None, FREE])
def test_a_quick_export_is_a_plain_one(symbolic: list[set[int]] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = trace(Branching(), CALL, symbolic=symbolic)
    assert not any(node.stack_trace for node in quick.graph.nodes)
    monkeypatch.setattr(export, "quick_export", lambda _: contextlib.nullcontext())
    plain = trace(Branching(), CALL, symbolic=symbolic)
    assert any(node.stack_trace for node in plain.graph.nodes)
    assert nodes(quick.graph) == nodes(plain.graph)
    assert not fx.config.do_not_emit_stack_traces


@pytest.mark.parametrize(("length", "stops"), [(5, False), (3, False), (7, True)])
def test_an_export_stops_where_it_refuses_the_sizes_that_are_needed(length: int, stops: bool) -> None:
    model = Branching()
    seen = []
    model.last.register_forward_hook(lambda *given: seen.append(isinstance(given[-1], FakeTensor)))
    needed = Call((torch.zeros(3, length, 4),), {})
    with pytest.raises(GossamerError, match="would need") if stops else contextlib.nullcontext():
        trace(model, CALL, symbolic=FREE, needed=needed)
    assert any(seen) is not stops


class Windows(nn.Module):
    """Cuts what a convolution leaves of an image into windows, and puts these together again."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.last = nn.Conv2d(1, 1, 3, stride=2, padding=1), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        windows = x.view(len(x), x.shape[2] // 4, 4, x.shape[3] // 4, 4).transpose(2, 3).reshape(-1, 4, 4)
        return self.last(windows)


def test_an_export_stops_at_the_first_size_that_takes_long() -> None:
    model, seen = Windows(), []
    model.last.register_forward_pre_hook(lambda _, args: seen.append(isinstance(args[0], FakeTensor)))
    with pytest.raises(GossamerError, match="long expression"):
        trace(model, Call((torch.zeros(2, 1, 32, 32),), {}), symbolic=[{0, 2, 3}])
    assert not any(seen)
