"""Strength schedules: the strength is multiplied by a function of the step number, which starts at 0."""

from __future__ import annotations

import math
from collections.abc import Callable

from gossamer.errors import GossamerError

__all__ = ["Schedule", "constant", "factor_at", "warm_up"]

Schedule = Callable[[int], float]


def constant(step: int) -> float:
    """1 at every step."""
    del step
    return 1.0


def warm_up(steps: int) -> Schedule:
    """Increase linearly from 1/steps at the first step to 1 at step number `steps`, then stay at 1.

    Weights are small after initialisation: the full strength can zero a layer before it has learnt anything.
    """
    if steps < 0:
        raise GossamerError(f"`warm_up(steps=...)` must not be negative; received {steps!r}.")
    return lambda step: min(1.0, (step + 1) / steps) if steps else 1.0


def factor_at(schedule: Schedule, step: int) -> float:
    """The value of a schedule at a step; an error unless it is finite and not negative."""
    factor = schedule(step)
    try:
        value = float(factor)
    except (TypeError, ValueError):
        value = math.nan
    if not 0 <= value < math.inf:
        raise GossamerError(
            f"`schedule` must return a finite number, not negative; at step {step} it returned {factor!r}."
        )
    return value
