"""A size to reach, as the estimators and the callbacks take it: a `Target`, or the fraction of weights to keep."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

from gossamer.errors import GossamerError
from gossamer.proximal.approach import FEWEST_STEPS
from gossamer.targets import Target

__all__ = ["SizeToReach", "as_target", "options_for"]

SizeToReach = Target | float


def as_target(target: SizeToReach | None) -> Target | None:
    """A fraction as a `Target` of parameters; the others as they are."""
    if target is None or isinstance(target, Target):
        return target
    if isinstance(target, Real) and not isinstance(target, bool):
        return Target(params=float(target))
    raise GossamerError(
        f"`target` must be a gossamer.Target, or the fraction of weights to keep such as 0.05; received {target!r}."
    )


def options_for(target: Target | None, hold_at: float | None, total: float) -> dict[str, Any]:
    """The options of `gossamer.attach` for a target; none without one.

    Args:
        target: The target.
        hold_at: The fraction of the training after which it is reached and its zeros stay; None for all of it.
        total: Optimizer steps of the training; infinite if it has no end.
    """
    if target is None:
        return {}
    if not math.isfinite(total):
        raise GossamerError(
            "`target` is reached after a fraction of the training, and this training has no end. Set its number of "
            "epochs or steps."
        )
    steps = int((1.0 if hold_at is None else hold_at) * total)
    if steps < FEWEST_STEPS:
        raise GossamerError(
            f"`target` needs at least {FEWEST_STEPS} optimizer steps until it is reached; `hold_at={hold_at!r}` of "
            f"{total:g} steps are {steps}. Train for more epochs or with smaller batches."
        )
    return {"target": target, "steps": steps}
