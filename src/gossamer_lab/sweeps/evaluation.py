"""One call of an objective, and everything that may come of it."""

from __future__ import annotations

import math
import time
import traceback
from dataclasses import dataclass

from gossamer_lab.sweeps.study import NoValueError, Objective

__all__ = ["Crash", "Failure", "Outcome", "Success", "attempt"]


@dataclass(frozen=True)
class Success:
    """The objective has a value."""

    value: float
    figures: dict[str, float]
    seconds: float


@dataclass(frozen=True)
class Failure:
    """The objective says that the point has no value."""

    reason: str
    seconds: float


@dataclass(frozen=True)
class Crash:
    """The objective raised what it should not; ``text`` is the traceback."""

    text: str


Outcome = Success | Failure | Crash


def attempt(objective: Objective, point: dict[str, float]) -> Outcome:
    """Call the objective at a point."""
    begin = time.perf_counter()
    try:
        value, figures = objective(dict(point))
        value = float(value)
        figures = {str(name): float(figure) for name, figure in figures.items()}
    except NoValueError as error:
        return Failure(str(error), time.perf_counter() - begin)
    except Exception:
        return Crash(traceback.format_exc())
    seconds = time.perf_counter() - begin
    for name, number in {**figures, "value": value}.items():
        if not math.isfinite(number):
            return Failure(f"{name} is {number}", seconds)
    return Success(value, figures, seconds)
