"""Strength schedules: functions of the step number, 0 for the first, that the strength is multiplied by."""

from __future__ import annotations

from collections.abc import Callable

from gossamer.errors import GossamerError

__all__ = ["Schedule", "constant", "warm_up"]

Schedule = Callable[[int], float]


def constant(step: int) -> float:
    """1 at every step."""
    del step
    return 1.0


def warm_up(steps: int) -> Schedule:
    """From 1/steps at the first step in equal parts to 1 at step number `steps`, and 1 from then on.

    Initial weights are small: the full strength from the start can zero a whole layer before it has learnt anything.
    """
    if steps < 0:
        raise GossamerError(f"`warm_up(steps=...)` must not be negative; received {steps!r}.")
    return lambda step: min(1.0, (step + 1) / steps) if steps else 1.0
