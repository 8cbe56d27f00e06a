from __future__ import annotations

import math

import pytest

from gossamer_lab.paper.criteria import MostAccurateWithinSize, SmallestWithinDrop
from gossamer_lab.sweeps import Bisection


def figures(accuracy: float, flops: float = 0.1, params: float = 0.1, dense: float = 0.95) -> dict[str, float]:
    return {"accuracy": accuracy, "flops_kept": flops, "params_kept": params, "accuracy_dense": dense}


def test_the_smallest_that_is_accurate_enough() -> None:
    criterion = SmallestWithinDrop(drop=0.01)
    assert criterion.value(figures(0.94, 0.01, 0.1)) == pytest.approx(-1.5)
    assert criterion.value(figures(0.99, 1.0, 1.0)) == 0
    values = [
        criterion.value(figures(0.95, 0.1)),
        criterion.value(figures(0.94, 0.05)),
        criterion.value(figures(0.93, 0.01)),
    ]
    assert min(values) == values[1]
    assert values[2] == pytest.approx(1.01)  # refused, and by how much
    assert criterion.value(figures(0.95, 0.0, 0.0)) == 1  # nothing is left
    assert isinstance(criterion.study("s", (1.0, 2.0, 3.0), 2), Bisection)


def test_the_most_accurate_that_is_small_enough() -> None:
    criterion = MostAccurateWithinSize(flops_kept=0.2, params_kept=0.1)
    assert criterion.value(figures(0.9, 0.2, 0.1)) == -0.9
    assert criterion.value(figures(0.8, 0.0, 0.0)) == -0.8
    assert criterion.value(figures(0.99, 0.2, 0.15)) == pytest.approx(1.5)
    assert criterion.value(figures(0.99, 0.6, 0.1)) == pytest.approx(3)
    assert math.isfinite(criterion.value(figures(0.0)))
    assert len(criterion.study("s", (1.0, 2.0, 3.0), 3).next_points([])) == 3
