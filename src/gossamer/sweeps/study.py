"""What a study tries: some points of a grid, in an order that a seed decides."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Protocol

from gossamer.errors import GossamerError

__all__ = ["NoValueError", "Objective", "Study"]

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


def _require(holds: bool, name: str, value: object, rule: str) -> None:
    if not holds:
        raise GossamerError(f"`Study({name}=...)` {rule}; received {value!r}.")


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= _LONGEST_NAME


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
