"""What two forward passes tell about the sizes of a graph is what the exporter finds."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from gossamer.errors import GossamerError
from gossamer.example import Call
from gossamer.shrinking.apply import accepts
from gossamer.shrinking.trace import takes_both, trace


class Resized(nn.Module):
    """Does something that depends on the height of an image between two layers."""

    def __init__(self, between: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.last, self.between = nn.Conv2d(1, 2, 1), nn.Conv2d(2, 1, 1), between

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.between(self.first(x))))


EXAMPLE, OTHER = (Call((torch.zeros(2, 1, size, 6),), {}) for size in (8, 16))

FREE: dict[str, Callable[[Tensor], Tensor]] = {
    "half": lambda x: x[:, :, : x.shape[2] // 2],
    "mean": lambda x: x.sum(2, keepdim=True) / x.size(2),
    "rounded up": lambda x: x[:, :, : math.ceil(x.size()[2] / 3) * 2],
}
BOUND: dict[str, Callable[[Tensor], Tensor]] = {
    "branch": lambda x: x.tanh() if x.shape[2] > 9 else x,
    "converted": lambda x: x[:, :, : int(x.shape[2] / 2)],
    "converted product": lambda x: x[:, :, : int(math.ceil(x.size(2) / 3) * 2 - 1)],
}


@pytest.mark.parametrize("case", [*FREE, *BOUND])
def test_bound_to_a_size_is_what_the_exporter_refuses(case: str) -> None:
    model = Resized((FREE | BOUND)[case])
    free = case in FREE
    assert takes_both(model, EXAMPLE, OTHER) is free
    assert takes_both(model, EXAMPLE, EXAMPLE) is (free or case == "branch")
    if free:
        assert accepts(trace(model, EXAMPLE, symbolic=[{2}], needed=OTHER), OTHER)
    else:
        with pytest.raises(GossamerError, match="would need"):
            trace(model, EXAMPLE, symbolic=[{2}], needed=OTHER)


def test_a_forward_that_does_not_run_so_tells_nothing() -> None:
    assert takes_both(Resized(lambda x: x * x.shape.numel()), EXAMPLE, OTHER)
