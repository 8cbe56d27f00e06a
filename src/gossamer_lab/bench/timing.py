"""Comparable timings: all candidates run interleaved in one process.

On a shared machine, or one that changes its clock rate, times of different minutes are not comparable. Ratios of
medians of interleaved runs are.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

__all__ = ["Added", "Timing", "time_bursts", "time_interleaved"]


@dataclass(frozen=True)
class Timing:
    """Median and quartiles of measured seconds."""

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
        """Return the columns of a table, in milliseconds."""
        return {"ms": 1e3 * self.median, "ms q25": 1e3 * self.low, "ms q75": 1e3 * self.high}


def time_interleaved(
    candidates: Mapping[str, Callable[[], object]], *, seconds: float = 2.0, least: int = 5, most: int = 200
) -> dict[str, Timing]:
    """Time candidates in rounds of one call each, after one warm-up call.

    The order is shuffled in every round, because a call leaves its traces in the caches.

    Args:
        candidates: Functions by name.
        seconds: Time budget per candidate; slow candidates run `least` times nevertheless.
        least: Minimum number of rounds.
        most: Maximum number of rounds.
    """
    for candidate in candidates.values():
        candidate()
    measured: dict[str, list[float]] = {name: [] for name in candidates}
    end = time.perf_counter() + seconds * len(candidates)
    order, generator = list(candidates), Random(0)
    for done in range(most):
        if done >= least and time.perf_counter() > end:
            break
        generator.shuffle(order)
        for name in order:
            started = time.perf_counter()
            candidates[name]()
            measured[name].append(time.perf_counter() - started)
    return {name: Timing.of(times) for name, times in measured.items()}


def time_bursts(
    candidates: Mapping[str, Callable[[], object]],
    *,
    seconds: float = 0.5,
    burst: float = 0.004,
    pause: float = 0.0,
    least: int = 5,
) -> dict[str, Timing]:
    """Time candidates in rounds of one burst of calls each; a time is that of a burst divided by its calls.

    For calls of microseconds: in the middle of a burst the caches hold what the candidate itself has left there, as in
    a program that does nothing else. The order is shuffled in every round.

    Args:
        candidates: Functions by name.
        seconds: Time budget per candidate; slow candidates run `least` times nevertheless.
        burst: Seconds of a burst, at least; a slow call is a burst of its own.
        pause: Seconds before a burst, which then starts with a call that does not count. The threads of a library that
            has just run wait actively for more work for a few milliseconds, and take cores from the next one.
        least: Minimum number of rounds.
    """
    calls = {name: _calls_of_a_burst(candidate, burst) for name, candidate in candidates.items()}
    measured: dict[str, list[float]] = {name: [] for name in candidates}
    end = time.perf_counter() + seconds * len(candidates)
    order, generator = list(candidates), Random(0)
    done = 0
    while done < least or time.perf_counter() < end:
        generator.shuffle(order)
        for name in order:
            if pause:
                time.sleep(pause)
                candidates[name]()
            measured[name].append(_burst(candidates[name], calls[name]) / calls[name])
        done += 1
    return {name: Timing.of(times) for name, times in measured.items()}


def _calls_of_a_burst(candidate: Callable[[], object], burst: float) -> int:
    candidate()
    calls = 1
    while _burst(candidate, calls) < burst:
        calls *= 2
    return calls


def _burst(candidate: Callable[[], object], calls: int) -> float:
    started = time.perf_counter()
    for _ in range(calls):
        candidate()
    return time.perf_counter() - started


@dataclass
class Added:
    """The time that a regularizer adds to the steps of an optimizer."""

    seconds: list[float] = field(default_factory=list)
    since: float = 0.0

    def start(self, *_: Any) -> None:
        """Start the clock; an optimizer hook."""
        self.since = time.perf_counter()

    def end(self, *_: Any) -> None:
        """Stop the clock; an optimizer hook."""
        self.seconds.append(time.perf_counter() - self.since)

    def median(self) -> float:
        """Return the median without the first step."""
        return statistics.median(self.seconds[1:])
