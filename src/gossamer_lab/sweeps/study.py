"""Studies: which points of a grid are evaluated, at random or by bisection."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Protocol

from gossamer.errors import GossamerError
from gossamer_lab.sweeps.trials import Trial

__all__ = ["Bisection", "NoValueError", "Objective", "Study"]

# Limit of Optuna's database columns.
_MAX_NAME = 512


class NoValueError(GossamerError):
    """The objective has no value at a point, for example because the training diverged."""


class Objective(Protocol):
    """A function to minimise. It is pickled and called in worker processes."""

    def __call__(self, parameters: dict[str, float]) -> tuple[float, dict[str, float]]:
        """Return the value at a point, and further figures to store with it.

        Raises:
            NoValueError: If the point has no value. It is not evaluated again. Any other exception stops the sweep.
        """
        ...


@dataclass(frozen=True)
class Study:
    """Random search without replacement: the first `trials` points of a shuffled grid.

    Attributes:
        name: Name in the storage.
        grid: Values of each parameter.
        trials: Budget: number of points to evaluate.
        seed: Seed of the order of the points.
    """

    name: str
    grid: Mapping[str, Sequence[float]]
    trials: int
    seed: int = 0

    def __post_init__(self) -> None:
        _require(_is_name(self.name), "name", self.name, f"must be a string of 1 to {_MAX_NAME} characters")
        _require(
            isinstance(self.grid, Mapping) and len(self.grid) > 0, "grid", self.grid, "must have at least one parameter"
        )
        for name, values in self.grid.items():
            _require(_is_name(name), "grid", name, f"must have parameter names of 1 to {_MAX_NAME} characters")
            _require(len(values) > 0, f"grid[{name!r}]", values, "must have at least one value")
            _require(all(map(_is_finite, values)), f"grid[{name!r}]", values, "must contain finite numbers")
            _require(len(set(values)) == len(values), f"grid[{name!r}]", values, "must contain every value once")
        size = math.prod(map(len, self.grid.values()))
        _require(
            _is_count(self.trials) and 1 <= self.trials <= size,
            "trials",
            self.trials,
            f"must be an integer from 1 to {size}, the size of the grid",
        )
        _require(_is_count(self.seed), "seed", self.seed, "must be a non-negative integer")

    def points(self) -> list[dict[str, float]]:
        """Return all points of the grid in the order of evaluation."""
        names = sorted(self.grid)  # the order of the parameters in the grid does not matter
        points = [
            dict(zip(names, map(float, values), strict=True))
            for values in product(*(self.grid[name] for name in names))
        ]
        random.Random(self.seed).shuffle(points)
        return points

    def next_points(self, finished: Sequence[Trial]) -> list[dict[str, float]]:
        """Return the points to evaluate next, given the finished trials; empty when the study is finished."""
        done = [trial.parameters for trial in finished]
        remaining = [point for point in self.points() if point not in done]
        return remaining[: max(0, self.trials - len(done))]

    def trials_left(self, finished: Sequence[Trial]) -> int:
        """Return the maximum number of remaining trials."""
        return len(self.next_points(finished))


@dataclass(frozen=True)
class Bisection(Study):
    """Bisection for the largest feasible value of one parameter.

    For an objective that decreases with the parameter as long as the point is feasible, and is positive where it is
    not. Each trial halves the interval between the largest feasible and the smallest infeasible value, so a grid of n
    values takes about log2(n + 1) trials.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(len(self.grid) == 1, "grid", self.grid, "must have exactly one parameter for a bisection")
        (values,) = self.grid.values()
        _require(list(values) == sorted(values), "grid", list(values), "must be ascending for a bisection")

    def next_points(self, finished: Sequence[Trial]) -> list[dict[str, float]]:
        """Return the middle of the remaining interval."""
        interval = self._interval(finished)
        if not interval or len(finished) >= self.trials:
            return []
        (name,) = self.grid
        return [{name: float(interval[(len(interval) - 1) // 2])}]

    def trials_left(self, finished: Sequence[Trial]) -> int:
        """Return the maximum number of remaining trials: each leaves at most half of the interval."""
        return max(0, min(self.trials - len(finished), len(self._interval(finished)).bit_length()))

    def _interval(self, finished: Sequence[Trial]) -> Sequence[float]:
        """Return the values between the largest known feasible and the smallest known infeasible one."""
        ((name, values),) = self.grid.items()
        feasible = {float(trial.parameters[name]): trial.value <= 0 for trial in finished}
        high = next((index for index, value in enumerate(values) if feasible.get(value) is False), len(values))
        low = max((index for index in range(high) if feasible.get(values[index])), default=-1)
        return values[low + 1 : high]


def _require(holds: bool, name: str, value: object, rule: str) -> None:
    if not holds:
        raise GossamerError(f"`Study({name}=...)` {rule}; received {value!r}.")


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= _MAX_NAME


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
