"""Sparse linear layers compute the same, and replace dense ones only where the clock (here: ours) says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from gossamer.errors import GossamerError
from gossamer.store import CSRLinear, fastest_linear, save
from gossamer.store.csr import best_seconds


def sparse_linear(inputs: int, outputs: int, density: float = 0.2, bias: bool = True) -> nn.Linear:
    layer = nn.Linear(inputs, outputs, bias=bias)
    with torch.no_grad():
        layer.weight[torch.rand_like(layer.weight) >= density] = 0
    return layer


def model_with_three_layers() -> nn.Sequential:
    return nn.Sequential(sparse_linear(20, 30), nn.ReLU(), nn.Linear(30, 40), sparse_linear(40, 5, bias=False))


class Clock:
    """Says that a sparse layer takes `ratio` times as long as a dense one."""

    def __init__(self, ratio: float) -> None:
        self.ratio = ratio

    def __call__(self, call: Callable[[], object]) -> float:
        call()
        return self.ratio if isinstance(call.func, CSRLinear) else 1.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("leading", [(), (1,), (7,), (2, 3), (0,)])
def test_same_as_dense(leading: tuple[int, ...], bias: bool, dtype: torch.dtype) -> None:
    layer = sparse_linear(20, 30, bias=bias).to(dtype)
    example = torch.randn(*leading, 20, dtype=dtype)
    torch.testing.assert_close(CSRLinear(layer)(example), layer(example))


def test_layers_without_any_weight_left() -> None:
    layer = sparse_linear(20, 30, density=0)
    torch.testing.assert_close(CSRLinear(layer)(torch.randn(3, 20)), layer(torch.randn(3, 20)))


def test_replaced_where_faster() -> None:
    model = model_with_three_layers()
    example = torch.randn(6, 20)
    faster, timings = fastest_linear(model, example, seconds=Clock(0.5))
    assert [type(layer) for layer in faster] == [CSRLinear, nn.ReLU, nn.Linear, CSRLinear]
    assert [type(layer) for layer in model] == [nn.Linear, nn.ReLU, nn.Linear, nn.Linear]
    torch.testing.assert_close(faster(example), model(example))
    assert [(timing.name, timing.sparse) for timing in timings] == [("0", True), ("2", False), ("3", True)]
    assert (timings[0].dense_seconds, timings[0].csr_seconds) == (1.0, 0.5)
    assert (timings[1].density, timings[1].dense_seconds) == (1.0, None)


@pytest.mark.parametrize("ratio", [0.95, 1.0, 2.0])
def test_kept_where_not_faster(ratio: float) -> None:
    faster, timings = fastest_linear(model_with_three_layers(), torch.randn(6, 20), seconds=Clock(ratio))
    assert not any(isinstance(layer, CSRLinear) for layer in faster)
    assert not any(timing.sparse for timing in timings)


class Odd(nn.Module):
    """A layer called twice, one called by keyword, one never called, and attention, which calls no layer."""

    def __init__(self) -> None:
        super().__init__()
        self.twice = sparse_linear(8, 8)
        self.alias = self.twice
        self.keyword = sparse_linear(8, 8)
        self.unused = sparse_linear(8, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        nn.init.zeros_(self.attention.out_proj.weight)

    def forward(self, x: Tensor) -> Tensor:
        x = self.keyword(input=self.alias(self.twice(x)))
        return self.attention(x, x, x)[0] @ self.unused.weight


def test_layers_used_in_odd_ways() -> None:
    faster, timings = fastest_linear(Odd(), {"x": torch.randn(2, 3, 8)}, seconds=Clock(0.1))
    assert {timing.name: timing.dense_seconds for timing in timings} == {"twice": 2.0, "keyword": 1.0}
    assert isinstance(faster.twice, CSRLinear)
    assert faster.alias is faster.twice
    assert type(faster.unused) is nn.Linear


def test_model_that_is_one_layer() -> None:
    faster, _ = fastest_linear(sparse_linear(4, 4), torch.randn(1, 4), seconds=Clock(0.1))
    assert isinstance(faster, CSRLinear)


def test_real_clock_measures_something() -> None:
    calls = []
    assert best_seconds(lambda: calls.append(None)) >= 0
    assert len(calls) > 5
    _, (timing, *_) = fastest_linear(model_with_three_layers(), torch.randn(6, 20))
    assert timing.dense_seconds >= 0
    assert timing.csr_seconds >= 0


class Transposing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = sparse_linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + x @ self.layer.weight.reshape(64).reshape(8, 8)


def test_weight_that_is_also_used_directly() -> None:
    with pytest.raises(GossamerError, match="keep it dense"):
        fastest_linear(Transposing(), torch.randn(2, 8), seconds=Clock(0.1))


def test_types_without_a_sparse_product_stay_dense() -> None:
    model = sparse_linear(8, 8).bfloat16()
    faster, (timing,) = fastest_linear(model, torch.randn(2, 8, dtype=torch.bfloat16), seconds=Clock(0.1))
    assert type(faster) is nn.Linear
    assert timing.csr_seconds is None


def test_errors(tmp_path: Path) -> None:
    with pytest.raises(GossamerError, match="fails on `example`"):
        fastest_linear(model_with_three_layers(), torch.randn(6, 21))
    with pytest.raises(GossamerError, match="Give a torch"):
        fastest_linear({}, torch.randn(6, 21))
    with pytest.raises(GossamerError, match=r"model\.cpu"):
        fastest_linear(nn.Linear(2, 2, device="meta"), torch.randn(6, 2))
    with pytest.raises(GossamerError, match="sparse=True"):
        save(CSRLinear(sparse_linear(2, 2)), tmp_path / "net")
