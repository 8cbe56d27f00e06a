"""Times that can be compared: all candidates of a question take turns in one run.

On a machine that is shared or changes its clock, times from different minutes say little; a ratio of medians of runs
that were taken in turn says what it should.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

__all__ = ["Timing", "take_turns"]


@dataclass(frozen=True)
class Timing:
    """Seconds: the median, and the quartiles as its spread."""

    median: float
    low: float
    high: float
    runs: int

    @classmethod
    def of(cls, seconds: list[float]) -> Timing:
        """Summarise measured seconds."""
        low, median, high = statistics.quantiles(seconds, n=4, method="inclusive") if len(seconds) > 1 else seconds * 3
        return cls(median, low, high, len(seconds))

    def cells(self) -> dict[str, float]:
        """Columns of a table, in milliseconds."""
        return {"ms": 1e3 * self.median, "ms low": 1e3 * self.low, "ms high": 1e3 * self.high}


def take_turns(
    candidates: Mapping[str, Callable[[], object]], *, seconds: float = 2.0, least: int = 5, most: int = 200
) -> dict[str, Timing]:
    """Time each candidate, one call of each in a turn, after one call that does not count.

    The order is drawn anew for every turn: what runs before leaves its traces in the caches.

    Args:
        candidates: name -> what to time.
        seconds: for each candidate together; slow ones get `least` calls all the same.
        least: calls of each candidate, at the least.
        most: calls of each candidate, at the most.
    """
    for candidate in candidates.values():
        candidate()
    measured: dict[str, list[float]] = {name: [] for name in candidates}
    end = time.perf_counter() + seconds * len(candidates)
    order, draw = list(candidates), Random(0)
    for turn in range(most):
        if turn >= least and time.perf_counter() > end:
            break
        draw.shuffle(order)
        for name in order:
            started = time.perf_counter()
            candidates[name]()
            measured[name].append(time.perf_counter() - started)
    return {name: Timing.of(times) for name, times in measured.items()}
