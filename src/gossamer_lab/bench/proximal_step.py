"""Benchmark `proximal-step`: the cost of each penalty's step against a copy of the weights and other libraries."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from gossamer.errors import GossamerError
from gossamer.layers import Weight
from gossamer.penalties import L0, L1, L2, MCP, SCAD, CappedL1, Exclusive, Group, L1MinusL2, Log, Lp, TransformedL1
from gossamer.proximal.fused import FusedStep, Move, supports
from gossamer.proximal.native import load_kernel
from gossamer.proximal.plain import plain_step_
from gossamer.regularizers import Rule, Term
from gossamer_lab.bench.alternatives import pat_steps, pyproximal_steps, skglm_steps
from gossamer_lab.bench.memory import peak_extra_bytes
from gossamer_lab.bench.published import published_integrated_tl1_, published_transformed_l1
from gossamer_lab.bench.result import Machine, Result, Value
from gossamer_lab.bench.timing import time_interleaved

__all__ = ["STEP", "integrated_terms", "ours", "proximal_step"]

STEP = 1e-6  # strength 1e-4, learning rate 1e-2
_ALTERNATIVES = {"PAT": pat_steps, "pyproximal": pyproximal_steps, "skglm": skglm_steps}
_INTEGRATED = "transformed l1, then groups"
_PUBLISHED: dict[str, Callable[[Tensor], object]] = {
    _INTEGRATED: lambda weight: published_integrated_tl1_(weight, STEP, 1.0),
    str(TransformedL1()): lambda weight: weight.copy_(published_transformed_l1(weight, STEP, 1.0)),
}
_SINGLE = (L0(), L1(), L2(), TransformedL1(), SCAD(), MCP(), Log(), CappedL1(), Lp(0.5))
_GROUPED = (Group(L1()), Group(TransformedL1()), L1MinusL2(), Exclusive())


def proximal_step(rows: int = 5000, columns: int = 2000, seconds: float = 1.0) -> Result:
    """Time the step of every penalty on one float32 matrix, with its rows as groups.

    Args:
        rows: Rows of the matrix.
        columns: Columns of the matrix.
        seconds: Time budget per candidate.
    """
    layer = nn.Linear(columns, rows, bias=False)
    weight = Weight("weight", layer, "weight")
    terms = {_INTEGRATED: integrated_terms()}
    terms |= {str(penalty): (Term(penalty, 1.0),) for penalty in _SINGLE}
    terms |= {str(penalty): (Term(penalty, 1.0, "outputs"),) for penalty in _GROUPED}
    return Result(
        name="proximal-step",
        title=f"proximal step on a matrix of {rows:,} x {columns:,} float32 weights",
        note=(
            "vs copy: time relative to a copy of the weights. extra %: peak memory in addition to the weights, "
            "relative to them. Other columns: their time relative to ours. PyTorch, whole: the same operations on the "
            "whole matrix at once. Empty: not available in that library, or not installed."
        ),
        machine=Machine.here(),
        rows=tuple(_row(name, Rule(weight, own), seconds) for name, own in terms.items()),
    )


def integrated_terms() -> tuple[Term, ...]:
    """Return the terms of integrated Tl1 with a balance of one half."""
    return Term(TransformedL1(), 0.5), Term(Group(L1()), 0.5, "outputs")


def _row(name: str, rule: Rule, seconds: float) -> dict[str, Value]:
    weight = rule.weight.parameter.detach()
    with torch.no_grad():
        weight.normal_(std=0.05, generator=torch.Generator().manual_seed(0))
    source, target = weight.clone(), torch.empty_like(weight)
    own_step, path = ours(rule, weight)
    candidates: dict[str, Callable[[], object]] = {
        "copy": lambda: target.copy_(source),
        "ours": own_step,
        "PyTorch, whole": lambda: weight.copy_(rule.prox(weight, torch.tensor(STEP, dtype=torch.float64))),
    }
    if name in _PUBLISHED:
        candidates["published formula"] = lambda: _PUBLISHED[name](weight)
    for library, steps in _ALTERNATIVES.items():
        if name in (theirs := steps(weight, STEP)):
            candidates[library] = theirs[name]
    times = time_interleaved(candidates, seconds=seconds, least=3)

    extra = peak_extra_bytes(own_step)
    own, copy = times["ours"].median, times["copy"].median
    row: dict[str, Value] = {"penalty": name, "path": path, **times["ours"].cells()}
    row["vs copy"] = own / copy
    row["extra %"] = None if extra is None else 100 * extra / (weight.numel() * weight.element_size())
    for other in ("PyTorch, whole", "published formula", *_ALTERNATIVES):
        row[other] = times[other].median / own if other in times else None
    return row


def ours(rule: Rule, weight: Tensor) -> tuple[Callable[[], object], str]:
    """Return our step on this weight as a function, and its path: fused or plain."""
    step = torch.tensor(STEP, dtype=torch.float64)
    if not supports(rule, weight):
        return lambda: plain_step_(rule, weight, step), "plain"
    kernel = load_kernel()
    if kernel is None:
        raise GossamerError("`gossamer bench` needs a C++ compiler to measure the fused kernel. Install one.")
    fused, moves = FusedStep(kernel), [Move(rule, weight, step)]
    return lambda: fused.take(moves), "fused"
