"""Benchmark `torch-compile`: `torch.compile` against our kernel.

Inductor is given the arithmetic of the kernel, including the polynomial that replaces trigonometric functions, so the
comparison is between the generated code only.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.polynomial import Chebyshev, Polynomial
from torch import Tensor, nn

from gossamer.layers import Weight
from gossamer.penalties import L1, Group, TransformedL1
from gossamer.regularizers import Rule, Term
from gossamer_lab.bench.memory import peak_extra_bytes
from gossamer_lab.bench.proximal_step import STEP, integrated_terms, ours
from gossamer_lab.bench.result import Machine, Result, Value
from gossamer_lab.bench.timing import time_interleaved

__all__ = ["torch_compile"]


def torch_compile(rows: int = 5000, columns: int = 2000, seconds: float = 2.0) -> Result:
    """Time the step compiled by PyTorch's inductor, our kernel, and a copy of the weights.

    Args:
        rows: Rows of the matrix.
        columns: Columns of the matrix.
        seconds: Time budget per candidate.
    """
    weight = Weight("weight", nn.Linear(columns, rows, bias=False), "weight")
    terms: dict[str, tuple[Term, ...]] = {
        "transformed l1": (Term(TransformedL1(), 1.0),),
        "transformed l1, then groups": integrated_terms(),
    }
    with _fresh_cache():
        measured = [row for name, own in terms.items() for row in _rows(name, Rule(weight, own), seconds)]
    return Result(
        name="torch-compile",
        title=f"torch.compile against the kernel on a matrix of {rows:,} x {columns:,} float32 weights",
        note=(
            "vs copy: time relative to a copy of the weights. extra %: peak memory in addition to the weights, "
            "relative to them. first call: with compilation for this shape; the kernel is compiled once for all shapes."
        ),
        machine=Machine.here(),
        rows=tuple(measured),
    )


def _rows(name: str, rule: Rule, seconds: float) -> list[dict[str, Value]]:
    weight = rule.weight.parameter.detach()
    with torch.no_grad():
        weight.normal_(std=0.05, generator=torch.Generator().manual_seed(0))
    source, target = weight.clone(), torch.empty_like(weight)
    step = torch.tensor(STEP, dtype=torch.float64)
    kernel, _ = ours(rule, weight)
    compiled = _compiled(grouped=len(rule.terms) > 1)
    candidates: dict[str, Callable[[], object]] = {
        "copy": lambda: target.copy_(source),
        "torch.compile": lambda: compiled(weight, step),
        "kernel": kernel,
    }
    first = {path: _seconds(candidates[path]) for path in ("torch.compile", "kernel")}
    times = time_interleaved(candidates, seconds=seconds)
    rows = []
    for path in first:
        extra = peak_extra_bytes(candidates[path])
        row: dict[str, Value] = {"step": name, "path": path, **times[path].cells()}
        row["vs copy"] = times[path].median / times["copy"].median
        row["extra %"] = None if extra is None else 100 * extra / (weight.numel() * weight.element_size())
        row["first call, s"] = first[path]
        rows.append(row)
    return rows


def _compiled(grouped: bool) -> Callable[[Tensor, Tensor], object]:
    coefficients, norm = _root_polynomial(), Group(L1())

    def step_(weight: Tensor, step: Tensor) -> None:
        moved = _transformed_l1(weight, step, coefficients)
        weight.copy_(norm.kernel(moved, step) if grouped else moved)

    torch.compiler.reset()
    return torch.compile(step_)


def _transformed_l1(w: Tensor, step: Tensor, coefficients: list[float]) -> Tensor:
    """Compute the step of `TransformedL1(1.0)` as in the kernel."""
    magnitude = w.abs()
    inverse = 1 / (magnitude + 1)
    scaled = 13.5 * step * inverse * inverse
    y = 1 - (1 - scaled * inverse).clamp(min=0).sqrt()
    root = torch.full_like(y, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        root = root * y + coefficient
    shrinkage = torch.minimum(scaled * root, magnitude)
    return w - torch.copysign(torch.where(magnitude <= TransformedL1().threshold(step), magnitude, shrinkage), w)


def _root_polynomial() -> list[float]:
    """Fit Q(y) = (4/3) sin^2(acos(1 - y) / 3) / (1 - (1 - y)^2) on [0, 1] by degree 10; coefficients ascending."""
    fit = Chebyshev.interpolate(
        lambda y: 4 / 3 * np.sin(np.arccos(1 - y) / 3) ** 2 / (1 - (1 - y) ** 2), 10, domain=[0, 1]
    )
    return [float(coefficient) for coefficient in fit.convert(kind=Polynomial).coef]


@contextmanager
def _fresh_cache() -> Iterator[None]:
    """Use an empty inductor cache, with inductor itself loaded and warm."""
    variable = "TORCHINDUCTOR_CACHE_DIR"
    before = os.environ.get(variable)
    with tempfile.TemporaryDirectory() as folder:
        os.environ[variable] = folder
        try:
            torch.compile(lambda x: x + 1)(torch.zeros(8))
            yield
        finally:
            os.environ.pop(variable)
            if before is not None:
                os.environ[variable] = before


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
