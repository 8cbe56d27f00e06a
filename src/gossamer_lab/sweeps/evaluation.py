"""One evaluation of an objective, and its possible outcomes."""

from __future__ import annotations

import math
import time
import traceback
from dataclasses import dataclass

from gossamer_lab.sweeps.study import NoValueError, Objective

__all__ = ["Crash", "Evaluation", "Failure", "Success", "evaluate"]


@dataclass(frozen=True)
class Success:
    """The objective has a value."""

    value: float
    figures: dict[str, float]
    seconds: float


@dataclass(frozen=True)
class Failure:
    """The objective has no value at the point."""

    reason: str
    seconds: float


@dataclass(frozen=True)
class Crash:
    """The objective raised an unexpected exception.

    Attributes:
        text: The traceback.
    """

    text: str


Evaluation = Success | Failure | Crash


def evaluate(objective: Objective, point: dict[str, float]) -> Evaluation:
    """Evaluate the objective at a point. A value or figure that is not finite is a failure."""
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
