"""Models with in-place operations of all kinds are shrunk exactly."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from gossamer.example import Call
from gossamer.shrinking import shrink
from gossamer.shrinking.api import Form
from gossamer.shrinking.trace import trace


def chained(x: Tensor) -> Tensor:
    y = x.relu_()
    y += 1.0
    return y.mul_(0.5) + x


def through_a_view(x: Tensor) -> Tensor:
    y = x.clone()
    y[:, 2:].mul_(0.0)
    return y + 1.0


def assigned(x: Tensor) -> Tensor:
    y = x * 1.0
    y[:, 0] = 3.0
    return y


def flattened_view(x: Tensor) -> Tensor:
    y = x.view(-1)
    y.add_(1.0)
    return x


def augmented(x: Tensor) -> Tensor:
    y = x * 1.0
    y[:, 2:5] += x[:, :3]
    y[:, 0] *= 2.0
    return y


def a_part_twice(x: Tensor) -> Tensor:
    y = x * 1.0
    part = y[:, ::2]
    part += 1.0
    part *= 2.0
    return y + 1.0


def a_part_of_a_part(x: Tensor) -> Tensor:
    y = x * 1.0
    y[:, 1:][:, 2] = 0.5
    return y


def another_view_of_a_part(x: Tensor) -> Tensor:
    y = x * 1.0
    part, again = y[:, :2], y[:, 1:3]
    part += 1.0
    return torch.cat([y, again], 1)[:, :6] + again.sum()


KEPT = [chained, through_a_view, assigned, augmented, a_part_twice]
DECOMPOSED = [flattened_view, a_part_of_a_part, another_view_of_a_part]


class Branches(nn.Module):
    """Each of these functions between two layers, side by side."""

    def __init__(self, middles: list[Callable[[Tensor], Tensor]], *, norm: bool = False) -> None:
        super().__init__()
        self.middles = middles
        norms = [nn.BatchNorm1d(6) if norm else nn.Identity() for _ in middles]
        self.first = nn.ModuleList(nn.Sequential(nn.Linear(3, 6), norm) for norm in norms)
        self.last = nn.ModuleList(nn.Linear(6, 2) for _ in middles)

    def forward(self, x: Tensor) -> list[Tensor]:
        parts = zip(self.first, self.middles, self.last, strict=True)
        return [last(middle(first(x))) for first, middle, last in parts]


@pytest.mark.parametrize("middles", [KEPT, DECOMPOSED], ids=["kept", "decomposed"])
@pytest.mark.parametrize("form", ["module", "graph"])
def test_overwritten_values(middles: list[Callable[[Tensor], Tensor]], form: Form) -> None:
    torch.manual_seed(0)
    model = Branches(middles).eval()
    with torch.no_grad():
        for first, last in zip(model.first, model.last, strict=True):
            first[0].weight[1] = 0
            last.weight[:, 4] = 0
    x = torch.randn(4, 3)
    small = shrink(model, x, form=form)
    torch.testing.assert_close(small(x), model(x))


@pytest.mark.parametrize("middle", [*KEPT, *DECOMPOSED])
def test_layers_stay_single_operations_where_a_value_or_a_part_of_it_is_overwritten(
    middle: Callable[[Tensor], Tensor],
) -> None:
    model = Branches([middle], norm=True).eval()
    x = torch.randn(4, 3)
    traced = trace(model, Call((x,), {}))
    kept = torch.ops.aten.batch_norm.default in {node.target for node in traced.graph.nodes}
    assert kept is (middle in KEPT)
    torch.testing.assert_close(traced.program.module()(x), model(x))


def test_one_of_several_results_is_overwritten_without_decomposing_the_program() -> None:
    class Routed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm = nn.Linear(3, 6), nn.BatchNorm1d(6)

        def forward(self, x: Tensor) -> Tensor:
            best, index = self.norm(self.first(x)).topk(2)
            best /= best.sum(1, keepdim=True)
            return best + index

    targets = {node.target for node in trace(Routed(), Call((torch.randn(4, 3),), {})).graph.nodes}
    assert {torch.ops.aten.batch_norm.default, torch.ops.aten.div.Tensor} <= targets


def test_a_buffer_that_forward_updates() -> None:
    class Counting(nn.Module):
        calls: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(3, 6), nn.Linear(6, 2)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            self.calls.add_(1.0)
            return self.last(torch.relu(self.first(x)))

    model = Counting()
    with torch.no_grad():
        model.first.weight[1] = 0
    small = shrink(model, torch.randn(4, 3))
    assert small.first.out_features == 5
    assert (model.calls.item(), small.calls.item()) == (0.0, 0.0)
