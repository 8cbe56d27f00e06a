"""Attempts: carry out a plan, verify it, and if it does not hold keep the units that are to blame."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

from gossamer.errors import GossamerError
from gossamer.shrinking.analysis import Analysis
from gossamer.shrinking.planning import make_plan
from gossamer.shrinking.plans import Plan
from gossamer.shrinking.solve import Decision
from gossamer.shrinking.written import written_sizes

__all__ = ["Outcome", "settle_plan"]

Result = TypeVar("Result")
Held = tuple[tuple[int, str], ...]

_ATTEMPTS = 16
"""How often units that were held are tried again: each time costs a plan, a copy and a few forwards."""

WRITTEN = "its number is written into forward"
UNPROVEN = "without it forward fails or gives other outputs (please report this)"


@dataclass(frozen=True)
class Outcome(Generic[Result]):
    """What held in the end: the plan, what it made, and whether written-in sizes kept units in."""

    plan: Plan
    result: Result
    blocked: bool


def settle_plan(
    run: Analysis,
    carry_out: Callable[[Plan, Decision], Result | None],
    coarser: Callable[[], Analysis] | None = None,
) -> Outcome[Result]:
    """The largest plan that `carry_out` accepts; it returns None for one that fails or changes the outputs.

    `coarser` is an analysis to fall back on in which heads of attention go or stay as a whole, since forwards that
    cannot survive narrower heads often survive fewer of them.
    """
    plan, decision = make_plan(run)
    result = carry_out(plan, decision)
    if result is not None:
        return Outcome(plan, result, blocked=False)
    if coarser is not None:
        found = settle_plan(coarser(), carry_out)
        return Outcome(found.plan, found.result, blocked=True)
    held = _hold(run, carry_out, written_sizes(run, decision), WRITTEN)
    if held is None:
        held = _hold(run, carry_out, _families(decision, run), UNPROVEN)
    if held is None:
        raise GossamerError(
            "the model could not be shrunk: even an unchanged copy of it gives other outputs. Make sure that "
            "copy.deepcopy(model) computes what model does."
        )
    return held


def _hold(
    run: Analysis, carry_out: Callable[[Plan, Decision], Result | None], groups: list[Tensor], reason: str
) -> Outcome[Result] | None:
    """Hold all of these groups of classes; if that helps, let go of those that may go after all, half by half."""
    if not groups:
        return None

    def attempt(held: list[Tensor]) -> Outcome[Result] | None:
        pinned = tuple((int(c), reason) for group in held for c in group)
        plan, decision = make_plan(run, pinned)
        result = carry_out(plan, decision)
        return None if result is None else Outcome(plan, result, blocked=True)

    best = attempt(groups)
    if best is None:
        return None
    held, waiting = list(groups), [groups] if len(groups) > 1 else []
    for _ in range(_ATTEMPTS):
        if not waiting:
            break
        released = waiting.pop()
        fewer = [group for group in held if not any(group is other for other in released)]
        found = attempt(fewer) if fewer else None
        if found is not None:
            held, best = fewer, found
        elif len(released) > 1:
            middle = len(released) // 2
            waiting += [released[:middle], released[middle:]]
    return best


def _families(decision: Decision, run: Analysis) -> list[Tensor]:
    """All classes, by the parameter dimension through which they run.

    Also those that stay: when others are held, units that were kept to fill a shape are no longer needed for it.
    """
    seen = torch.zeros(len(decision.classes), dtype=torch.bool)
    families = []
    for labels in [*(ls for axes in run.axes.values() for ls in axes.values()), *run.elements.values()]:
        classes = torch.unique(decision.classes[labels])
        fresh = classes[~seen[classes]]
        seen[fresh] = True
        if fresh.numel():
            families.append(fresh)
    return families
