"""Layers inside `torch.autocast`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gossamer.shrinking import plan


class Mixed(nn.Module):
    """Two linear layers, the first of them in a region of autocast; its units 1 and 2 are zero."""

    def __init__(self, *, enabled: bool) -> None:
        super().__init__()
        self.first, self.second, self.enabled = nn.Linear(4, 6), nn.Linear(6, 3), enabled
        with torch.no_grad():
            self.first.weight[1:3], self.first.bias[1:3] = 0, 0

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.enabled):
            h = torch.relu(self.first(x))
            h = h + h.mean(0, keepdim=True)
        return self.second(h.float())


@pytest.mark.parametrize("form", ["module", "graph"])
def test_layers_without_autocast_lose_units(form: Any) -> None:
    torch.manual_seed(0)
    model = Mixed(enabled=False).eval()
    small = plan(model, torch.randn(2, 4), form=form).apply()
    assert small.get_parameter("first.weight").shape == (4, 4)
    x = torch.randn(5, 4)
    torch.testing.assert_close(small(x), model(x))


def test_layers_in_autocast_stay_and_the_plan_says_why() -> None:
    found = plan(Mixed(enabled=True).eval(), torch.randn(2, 4), form="module")
    assert found.weights_after == found.weights_before
    assert "inside torch.autocast stays as it is" in str(found)
