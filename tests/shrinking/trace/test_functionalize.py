"""Models with in-place operations of all kinds are shrunk exactly."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from gossamer.example import Call
from gossamer.shrinking import shrink
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


@pytest.mark.parametrize("middle", [*KEPT, *DECOMPOSED])
@pytest.mark.parametrize("form", ["module", "graph"])
def test_overwritten_values(middle: Callable[[Tensor], Tensor], form: str) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(3, 6), nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(middle(self.first(x)))

    torch.manual_seed(0)
    model = Net()
    with torch.no_grad():
        model.first.weight[1] = 0
        model.last.weight[:, 4] = 0
    x = torch.randn(4, 3)
    small = shrink(model, x, form=form)  # type: ignore[arg-type]
    torch.testing.assert_close(small(x), model(x))


@pytest.mark.parametrize("middle", KEPT)
def test_layers_stay_single_operations_where_a_value_or_a_part_of_it_is_overwritten(
    middle: Callable[[Tensor], Tensor],
) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(6)

        def forward(self, x: Tensor) -> Tensor:
            return middle(self.norm(x))

    x = torch.randn(4, 6)
    traced = trace(Net(), Call((x.clone(),), {}))
    assert torch.ops.aten.batch_norm.default in {node.target for node in traced.graph.nodes}
    torch.testing.assert_close(traced.program.module()(x), Net().eval()(x))


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
