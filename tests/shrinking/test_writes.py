"""Values that are written into a tensor, or chosen between two: they keep the units, and constants where they are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from gossamer.shrinking import shrink


class Between(nn.Module):
    """Does something with the eight hidden units, of which 1 is zero and 2 is one for every input."""

    def __init__(self, between: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.between = nn.Linear(4, 8), nn.Linear(8, 3), between
        with torch.no_grad():
            self.first.weight[1:3] = 0
            self.first.bias[1:3] = torch.tensor([0.0, 1.0])

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.between(torch.relu(self.first(x)), x[..., :1] > 0))


def zero_position(h: Tensor, _: Tensor) -> Tensor:
    h[:, 0] = 0
    return h


def shifted(h: Tensor, _: Tensor) -> Tensor:
    later = torch.zeros_like(h)
    later[:, 1:] = h[:, :-1]
    return later


def overwritten(h: Tensor, _: Tensor) -> Tensor:
    found = torch.empty_like(h)
    found[:, :] = h
    return found


def moved(h: Tensor, _: Tensor) -> Tensor:
    h[:, 1:-1] = h[:, 2:]
    return h


# What happens to the hidden units, and how many of them stay.
CASES: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], int]] = {
    "a position is zero": (zero_position, 7),
    "a shift in time": (shifted, 7),
    "written into an empty tensor": (overwritten, 6),
    "written into itself": (moved, 6),
    "masked by zero": (lambda h, where: h.masked_fill(where, 0.0), 7),
    "masked by one": (lambda h, where: h.masked_fill(where, 1.0), 7),
    "chosen between two signs": (lambda h, where: torch.where(where, h, -h), 7),
    "chosen between equals": (lambda h, where: torch.where(where, h, h), 6),
    "chosen between zero and itself": (lambda h, where: torch.where(where, 0.0, h), 7),
    "times a number in a tensor": (lambda h, _: h * torch.tensor(2.0), 6),
}


@pytest.mark.parametrize("form", ["module", "graph"])
@pytest.mark.parametrize("case", CASES)
def test_units_keep_their_constants(case: str, form: str) -> None:
    between, left = CASES[case]
    model, x = Between(between), torch.randn(2, 5, 4)
    small = shrink(model, x, form=form)  # type: ignore[arg-type]
    assert small.get_parameter("first.weight").shape == (left, 4)
    for other in (x, torch.randn(2, 5, 4), torch.randn(3, 7, 4)):
        torch.testing.assert_close(small(other), model(other))
