"""Question a: what does the proximal step cost, against a copy of the weights and against others?"""

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
from gossamer_lab.bench.memory import peak_extra_bytes
from gossamer_lab.bench.published import published_integrated_tl1_, published_transformed_l1
from gossamer_lab.bench.result import Machine, Result, Value
from gossamer_lab.bench.rivals import pat_steps, pyproximal_steps, skglm_steps
from gossamer_lab.bench.timing import take_turns

__all__ = ["STEP", "integrated_terms", "ours", "proximal_step"]

STEP = 1e-6  # strength 1e-4, learning rate 1e-2
_RIVALS = {"PAT": pat_steps, "pyproximal": pyproximal_steps, "skglm": skglm_steps}
_INTEGRATED = "transformed l1, then groups"
_PUBLISHED: dict[str, Callable[[Tensor], object]] = {
    _INTEGRATED: lambda weight: published_integrated_tl1_(weight, STEP, 1.0),
    str(TransformedL1()): lambda weight: weight.copy_(published_transformed_l1(weight, STEP, 1.0)),
}
_SINGLE = (L0(), L1(), L2(), TransformedL1(), SCAD(), MCP(), Log(), CappedL1(), Lp(0.5))
_GROUPED = (Group(L1()), Group(TransformedL1()), L1MinusL2(), Exclusive())


def proximal_step(rows: int = 5000, columns: int = 2000, seconds: float = 1.0) -> Result:
    """Every penalty on one matrix of float32, its rows the groups.

    Args:
        rows: of the matrix.
        columns: of the matrix.
        seconds: of measuring for each candidate.
    """
    layer = nn.Linear(columns, rows, bias=False)
    weight = Weight("weight", layer, "weight")
    terms = {_INTEGRATED: integrated_terms()}
    terms |= {str(penalty): (Term(penalty, 1.0),) for penalty in _SINGLE}
    terms |= {str(penalty): (Term(penalty, 1.0, "outputs"),) for penalty in _GROUPED}
    return Result(
        question="a",
        title=f"the proximal step on a matrix of {rows:,} x {columns:,} float32 weights",
        note=(
            "copies: time over that of a copy of the weights, in the same turns. extra: peak memory above the weights' "
            "own, in % of it. Other columns: their time over ours. PyTorch, whole: the penalty's operations on the "
            "whole matrix at once. Empty: the library does not have it, or is not installed."
        ),
        machine=Machine.here(),
        rows=tuple(_row(name, Rule(weight, own), seconds) for name, own in terms.items()),
    )


def integrated_terms() -> tuple[Term, ...]:
    """Integrated Tl1 with a balance of one half: the step that the goals are stated for."""
    return Term(TransformedL1(), 0.5), Term(Group(L1()), 0.5, "outputs")


def _row(name: str, rule: Rule, seconds: float) -> dict[str, Value]:
    weight = rule.weight.parameter.detach()
    with torch.no_grad():
        weight.normal_(std=0.05, generator=torch.Generator().manual_seed(0))
    source, target = weight.clone(), torch.empty_like(weight)
    own_step, way = ours(rule, weight)
    candidates: dict[str, Callable[[], object]] = {
        "copy": lambda: target.copy_(source),
        "ours": own_step,
        "PyTorch, whole": lambda: weight.copy_(rule.prox(weight, torch.tensor(STEP, dtype=torch.float64))),
    }
    if name in _PUBLISHED:
        candidates["published formula"] = lambda: _PUBLISHED[name](weight)
    for library, steps in _RIVALS.items():
        if name in (theirs := steps(weight, STEP)):
            candidates[library] = theirs[name]
    times = take_turns(candidates, seconds=seconds, least=3)

    extra = peak_extra_bytes(own_step)
    own, copy = times["ours"].median, times["copy"].median
    row: dict[str, Value] = {"penalty": name, "way": way, **times["ours"].cells()}
    row["copies"] = own / copy
    row["extra %"] = None if extra is None else 100 * extra / (weight.numel() * weight.element_size())
    for other in ("PyTorch, whole", "published formula", *_RIVALS):
        row[other] = times[other].median / own if other in times else None
    return row


def ours(rule: Rule, weight: Tensor) -> tuple[Callable[[], object], str]:
    """Our step on this weight, ready to be called, and which way it goes."""
    step = torch.tensor(STEP, dtype=torch.float64)
    if not supports(rule, weight):
        return lambda: plain_step_(rule, weight, step), "plain"
    kernel = load_kernel()
    if kernel is None:
        raise GossamerError("`gossamer bench` needs a C++ compiler, to measure the fused kernel.")
    fused, moves = FusedStep(kernel), [Move(rule, weight, step)]
    return lambda: fused.take(moves), "fused"
