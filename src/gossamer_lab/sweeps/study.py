"""What a study tries: points of a grid, in an order that a seed decides or by bisection."""

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

# Optuna's own limit on what it can look up.
_LONGEST_NAME = 512


class NoValueError(GossamerError):
    """An objective has no value at a point, as when a training diverged."""


class Objective(Protocol):
    """What a study minimises; pickled, because other processes call it."""

    def __call__(self, parameters: dict[str, float]) -> tuple[float, dict[str, float]]:
        """Give the value of a point and whatever figures shall stand beside it.

        Raises:
            NoValueError: When the point has no value, as a training that diverged. It is not tried again.
                Every other exception stops the sweep.
        """
        ...


@dataclass(frozen=True)
class Study:
    """The first ``trials`` points of a shuffled grid.

    Attributes:
        name: Under which the storage keeps the trials.
        grid: The values of each parameter.
        trials: The budget: how many points are tried.
        seed: Of the order in which the points are tried.
    """

    name: str
    grid: Mapping[str, Sequence[float]]
    trials: int
    seed: int = 0

    def __post_init__(self) -> None:
        _require(_is_name(self.name), "name", self.name, f"must be text of 1 to {_LONGEST_NAME} characters")
        _require(isinstance(self.grid, Mapping) and len(self.grid) > 0, "grid", self.grid, "must name a parameter")
        for name, values in self.grid.items():
            _require(_is_name(name), "grid", name, f"must name parameters by text of 1 to {_LONGEST_NAME} characters")
            _require(len(values) > 0, f"grid[{name!r}]", values, "must hold a value")
            _require(all(map(_is_finite, values)), f"grid[{name!r}]", values, "must hold finite numbers")
            _require(len(set(values)) == len(values), f"grid[{name!r}]", values, "must hold every value once")
        size = math.prod(map(len, self.grid.values()))
        _require(
            _is_count(self.trials) and 1 <= self.trials <= size,
            "trials",
            self.trials,
            f"must be a whole number from 1 to {size}, the points of the grid",
        )
        _require(_is_count(self.seed), "seed", self.seed, "must be a whole number, not negative")

    def points(self) -> list[dict[str, float]]:
        """All points of the grid in the order in which they are tried."""
        names = sorted(self.grid)  # the order in which the parameters are written down decides nothing
        points = [
            dict(zip(names, map(float, values), strict=True))
            for values in product(*(self.grid[name] for name in names))
        ]
        random.Random(self.seed).shuffle(points)
        return points

    def next_points(self, finished: Sequence[Trial]) -> list[dict[str, float]]:
        """The points that are still to be tried, as far as the finished trials can tell; none when all is done."""
        tried = [trial.parameters for trial in finished]
        left = [point for point in self.points() if point not in tried]
        return left[: max(0, self.trials - len(tried))]

    def trials_left(self, finished: Sequence[Trial]) -> int:
        """How many trials are still to come at the most."""
        return len(self.next_points(finished))


@dataclass(frozen=True)
class Bisection(Study):
    """The largest value of one parameter that is still allowed, found by halving.

    For an objective that is the better the larger the parameter, up to where the point is not allowed any more: it says
    so by a value above 0. Each trial halves the values between the largest allowed one and the smallest that is not, so
    a grid of n values takes about log2(n + 1) trials.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(len(self.grid) == 1, "grid", self.grid, "must name one parameter for a bisection")
        (values,) = self.grid.values()
        _require(list(values) == sorted(values), "grid", list(values), "must ascend for a bisection")

    def next_points(self, finished: Sequence[Trial]) -> list[dict[str, float]]:
        """The value halfway between those that are known to be allowed and those that are known not to be."""
        between = self._between(finished)
        if not between or len(finished) >= self.trials:
            return []
        (name,) = self.grid
        return [{name: float(between[(len(between) - 1) // 2])}]

    def trials_left(self, finished: Sequence[Trial]) -> int:
        """How many trials are still to come at the most: each leaves at most half of the values."""
        return max(0, min(self.trials - len(finished), len(self._between(finished)).bit_length()))

    def _between(self, finished: Sequence[Trial]) -> Sequence[float]:
        """The values between the largest that is known to be allowed and the smallest that is known not to be."""
        ((name, values),) = self.grid.items()
        allowed = {float(trial.parameters[name]): trial.value <= 0 for trial in finished}
        beyond = next((place for place, value in enumerate(values) if allowed.get(value) is False), len(values))
        within = max((place for place in range(beyond) if allowed.get(values[place])), default=-1)
        return values[within + 1 : beyond]


def _require(holds: bool, name: str, value: object, rule: str) -> None:
    if not holds:
        raise GossamerError(f"`Study({name}=...)` {rule}; received {value!r}.")


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= _LONGEST_NAME


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
