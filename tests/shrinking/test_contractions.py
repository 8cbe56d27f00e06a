"""Products with parameters of two and more dimensions: `einsum`, stacked experts, one expert of a stack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gossamer.shrinking import plan, shrink

from .test_coverage import agrees


class Contraction(nn.Module):
    """A product with `first`, a ReLU, and a product with `second`; units 1 and 2 of the six between them are dead."""

    def __init__(self, first: tuple[int, ...], second: tuple[int, ...], made: int, compute: Callable[..., Any]) -> None:
        super().__init__()
        self.first, self.second = nn.Parameter(torch.randn(first)), nn.Parameter(torch.randn(second))
        self.compute = compute
        with torch.no_grad():
            self.first.index_fill_(made, torch.tensor([1, 2]), 0)

    def forward(self, x: Tensor) -> Tensor:
        return self.compute(x, self.first, self.second)


def _einsum(first: str, second: str) -> Callable[..., Tensor]:
    return lambda x, v, w: torch.einsum(second, torch.relu(torch.einsum(first, x, v)), w)


def _reversed(x: Tensor, v: Tensor, w: Tensor) -> Tensor:
    return torch.einsum("ko,btk->bto", w, torch.relu(torch.einsum("ko,btk->bto", v, x)))


def _experts(x: Tensor, v: Tensor, w: Tensor) -> Tensor:
    """Every token through every expert, as one batched product."""
    return torch.relu(x.expand(3, -1, -1, -1).flatten(1, 2) @ v).bmm(w).mean(0)


def _one_by_one(x: Tensor, v: Tensor, w: Tensor) -> Tensor:
    return sum(torch.relu(nn.functional.linear(x, v[e])) @ w[e] for e in range(3))  # type: ignore[return-value]


CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], int, int, Callable[..., Any]]] = {
    # shapes of both parameters, the dimension of the units in each
    "einsum": ((4, 6), (6, 3), 1, 0, _einsum("btk,ko->bto", "btk,ko->bto")),
    "an ellipsis": ((4, 6), (6, 3), 1, 0, _einsum("...k,ko->...o", "...k,ko->...o")),
    "the parameter first": ((4, 6), (6, 3), 1, 0, _reversed),
    "heads": ((4, 6, 5), (6, 5, 3), 1, 0, _einsum("btk,khd->bthd", "bthd,hdo->bto")),
    "experts in einsum": ((3, 4, 6), (3, 6, 2), 2, 1, _einsum("btk,eko->bteo", "bteo,eop->btep")),
    "stacked experts": ((3, 4, 6), (3, 6, 2), 2, 1, _experts),
    "one expert after the other": ((3, 6, 4), (3, 6, 2), 1, 1, _one_by_one),
}


@pytest.mark.parametrize("form", ["module", "graph"])
@pytest.mark.parametrize("case", CASES)
def test_units_between_two_parameters_go(case: str, form: Any) -> None:
    torch.manual_seed(0)
    first, second, made, read, compute = CASES[case]
    model = Contraction(first, second, made, compute).eval()
    x = torch.randn(2, 5, 4)
    small = shrink(model, x, form=form)
    assert (small.first.shape[made], small.second.shape[read]) == (4, 4)
    agrees(model, small, x, torch.randn(3, 7, 4))


def test_a_constant_before_a_contraction_stays() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), Contraction((6, 5), (5, 3), 1, CASES["einsum"][4]))
    with torch.no_grad():
        model[0].weight[3] = 0  # its bias is not: there is no place for what it contributes
    x = torch.randn(2, 7, 4)
    found = plan(model, x)
    assert "constant, but 1.first has no bias" in str(found)
    agrees(model, found.apply(), x)


class WithLayer(nn.Module):
    """Computes with the weight of a linear layer in another way than the layer does."""

    def __init__(self, compute: Callable[[Tensor, nn.Linear], Tensor]) -> None:
        super().__init__()
        self.first, self.last, self.compute = nn.Linear(4, 6), nn.Linear(6, 3), compute
        with torch.no_grad():
            self.first.weight[1:3] = 0
            self.first.bias[1] = 0  # unit 2 is a constant

    def forward(self, x: Tensor) -> Tensor:
        return self.compute(torch.tanh(self.first(x)), self.last)


@pytest.mark.parametrize(
    ("compute", "left"),
    [
        (lambda h, last: torch.einsum("btk,ok->bto", h, last.weight) + last.bias, 5),
        (lambda h, last: torch.addmm(last.bias, h.flatten(0, 1), last.weight.T, alpha=0.5), 4),
        (lambda h, last: torch.addmm(last.bias, h.flatten(0, 1), last.weight.T, beta=0.5), 6),
    ],
)
def test_the_weight_of_a_layer_in_a_product(compute: Callable[[Tensor, nn.Linear], Tensor], left: int) -> None:
    torch.manual_seed(0)
    model, x = WithLayer(compute).eval(), torch.randn(2, 5, 4)
    found = plan(model, x, form="module")
    small = found.apply()
    assert (small.first.out_features, small.last.in_features) == (left, left)
    assert "report" not in str(found)
    agrees(model, small, x, torch.randn(3, 7, 4))


class Routed(nn.Module):
    """Each token through its expert, with a grouped matrix product; all but five hidden units are dead."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Parameter(torch.randn(3, 16, 8)), nn.Parameter(torch.randn(3, 8, 16))
        with torch.no_grad():
            self.up[:, 5:] = 0

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(0, 1)
        expert, order = torch.sort((flat.sum(-1) > 0).long() + (flat[:, 0] > 0).long())
        ends = torch.stack([(expert <= e).sum() for e in range(3)]).int()
        hidden = torch.relu(nn.functional.grouped_mm(flat[order], self.up.mT, offs=ends))
        return nn.functional.grouped_mm(hidden, self.down.mT, offs=ends)[order.argsort()].view_as(x)


def test_grouped_products_keep_a_multiple_that_their_kernel_takes() -> None:
    torch.manual_seed(0)
    model = Routed().eval().bfloat16()  # the exporter knows this operation in this precision only
    x = torch.randn(2, 6, 8, dtype=torch.bfloat16)
    found = plan(model, x)
    small = found.apply()
    assert (small.up.shape, small.down.shape) == ((3, 8, 8), (3, 8, 8))
    assert "takes multiples of 8 units" in str(found)
    other = torch.randn(3, 5, 8, dtype=torch.bfloat16)
    torch.testing.assert_close(small(other), model(other), rtol=0.02, atol=0.02)


class Spreading(nn.Module):
    """Multiplies what a layer makes with a matrix that is the same for all samples, heads or relations."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 3)
        with torch.no_grad():
            self.first.weight[1:3], self.first.bias[1:3] = 0, 0

    def forward(self, x: Tensor, matrix: Tensor) -> Tensor:
        return self.last(matrix @ torch.relu(self.first(x)))


@pytest.mark.parametrize("form", ["module", "graph"])
@pytest.mark.parametrize(
    ("own", "of_matrix"),
    [((2, 5, 4), (5, 5)), ((2, 5, 4), (1, 5, 5)), ((2, 3, 5, 4), (3, 5, 5)), ((5, 4), (3, 5, 5))],
)
def test_units_pass_a_product_that_is_broadcast(own: tuple[int, ...], of_matrix: tuple[int, ...], form: Any) -> None:
    torch.manual_seed(0)
    model, inputs = Spreading().eval(), (torch.randn(own), torch.randn(of_matrix))
    small = shrink(model, inputs, form=form)
    assert small.get_parameter("last.weight").shape == (3, 4)
    torch.testing.assert_close(small(*inputs), model(*inputs))


class SharedKeys(nn.Module):
    """Attention of three heads of four units, which share keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.last = nn.Linear(8, 12), nn.Linear(8, 4), nn.Linear(8, 4), nn.Linear(12, 3)
        with torch.no_grad():
            self.k.weight[1], self.k.bias[1] = 0, 0  # unit 1 of the queries meets zeros, and so does its key
            self.v.weight[2], self.v.bias[2] = 0, 0
            self.last.weight[:, 8:] = 0  # nothing reads the third head

    def forward(self, x: Tensor) -> Tensor:
        q = self.q(x).view(*x.shape[:2], 3, -1).transpose(1, 2)
        k, v = self.k(x).unsqueeze(1), self.v(x).unsqueeze(1)
        return self.last(((q @ k.mT).softmax(-1) @ v).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("form", ["module", "graph"])
def test_heads_that_share_keys_by_broadcasting(form: Any) -> None:
    torch.manual_seed(0)
    model, x = SharedKeys().eval(), torch.randn(2, 5, 8)
    small = shrink(model, x, form=form)
    assert sum(p.numel() for p in small.parameters()) < 0.8 * sum(p.numel() for p in model.parameters())
    agrees(model, small, x, torch.randn(3, 7, 8))
