"""`float32_errors`: small where a model is well conditioned, and no less than any float32 computation may do."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gossamer.example import Call
from gossamer.inference.rounding import float32_errors, in_float64


class Cancels(nn.Module):
    """x, by a sum in which most of its digits are lost."""

    def forward(self, x: Tensor) -> Tensor:
        return (x + 1000.0) - 1000.0


def errors(model: nn.Module, x: Tensor) -> float:
    call = Call((x,), {})
    exact = in_float64(model, call)
    assert all(output.dtype is torch.float64 for output in exact)
    (error,) = float32_errors(model, call, exact)
    return error


def test_a_linear_layer_hardly_magnifies_rounding() -> None:
    torch.manual_seed(0)
    model = nn.Linear(30, 30)
    before = [parameter.clone() for parameter in model.parameters()]
    assert 1e-8 < errors(model, torch.randn(5, 30)) < 2e-6
    assert all(own.equal(right) for own, right in zip(model.parameters(), before, strict=True))


def test_a_difference_of_almost_equal_numbers_does() -> None:
    error = errors(Cancels(), torch.linspace(0.1, 0.9, 100))
    assert 0.9 * 2.0**-15 <= error <= 1.1 * 2.0**-14  # half a unit in the last place of 1000, twice


def test_the_last_bits_count() -> None:
    """The sum is exact in float32, but not for inputs whose last bit differs."""
    model = nn.Sequential(nn.Linear(2, 1, bias=False))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1024.0, -1024.0]]))
    x = torch.tensor([[1.5, 1.5]])
    assert model(x).item() == 0.0
    assert errors(model, x) >= 2.0**-13


def test_zeros_stay_zero() -> None:
    model = nn.Linear(4, 4)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert errors(model, torch.randn(3, 4)) == 0.0


def test_indices_are_left_alone() -> None:
    assert errors(nn.Embedding(5, 3), torch.tensor([[0, 4]])) < 1e-6
