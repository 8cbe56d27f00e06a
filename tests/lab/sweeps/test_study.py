from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer import GossamerError
from gossamer_lab.sweeps import Bisection, Study, Trial

GRID = {"x": [0, 1, 2], "y": [-1.0, 0.5]}


def test_points_are_the_whole_grid():
    points = Study("s", GRID, trials=6).points()
    assert len(points) == 6
    assert {(point["x"], point["y"]) for point in points} == {(x, y) for x in GRID["x"] for y in GRID["y"]}


def test_what_is_left_are_the_points_that_are_not_tried():
    study = Study("s", {"x": [0.0, 1.0, 2.0]}, trials=2)
    first = trial(study.points()[0]["x"], 0.5)
    assert [study.trials_left(tried) for tried in ([], [first])] == [2, 1]


def test_the_seed_alone_decides_the_order():
    grid = {"x": range(10), "y": range(10)}
    points = Study("s", grid, trials=1, seed=3).points()
    assert points == Study("other", dict(reversed(grid.items())), trials=50, seed=3).points()
    assert points != Study("s", grid, trials=1, seed=4).points()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": ""}, r"`Study\(name=...\)` must be a string"),
        ({"name": "n" * 513}, "must be a string of 1 to 512"),
        ({"grid": {}}, r"`Study\(grid=...\)` must have at least one parameter; received {}"),
        ({"grid": {"x": []}}, r"`Study\(grid\['x'\]=...\)` must have at least one value; received \[\]"),
        ({"grid": {"x": [1.0, math.nan]}}, "must contain finite numbers"),
        ({"grid": {"x": "12"}}, "must contain finite numbers"),
        ({"grid": {"x": [1, 1.0]}}, "must contain every value once"),
        ({"grid": {1: [1.0]}}, "must have parameter names"),
        ({"trials": 0}, r"must be an integer from 1 to 6, the size of the grid; received 0"),
        ({"trials": 7}, "from 1 to 6"),
        ({"trials": 2.0}, "from 1 to 6"),
        ({"seed": -1}, r"`Study\(seed=...\)` must be a non-negative integer; received -1"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(GossamerError, match=message):
        Study(**{"name": "s", "grid": GRID, "trials": 2, **arguments})


def trial(x, value):
    return Trial("s", 0, {"x": x}, value, {}, 1.0, None if math.isfinite(value) else "diverged")


@given(st.integers(1, 40), st.data())
def test_a_bisection_finds_the_largest_value_that_is_allowed(count, data):
    values = tuple(float(x) for x in range(1, count + 1))
    last = data.draw(st.integers(0, count))  # how many are allowed
    study = Bisection("s", {"x": values}, trials=count)
    tried = []
    most = study.trials_left(tried)
    while points := study.next_points(tried):
        (point,) = points
        assert point["x"] not in [one.parameters["x"] for one in tried]
        tried.append(trial(point["x"], -point["x"] if point["x"] <= last else math.inf))
    assert len(tried) <= most == math.ceil(math.log2(count + 1))
    assert study.trials_left(tried) == 0
    assert max((one.parameters["x"] for one in tried if one.value <= 0), default=0) == last


def test_a_bisection_ends_with_its_budget():
    study = Bisection("s", {"x": tuple(range(1, 100))}, trials=2)
    assert study.trials_left([]) == 2
    assert study.next_points([trial(50.0, -1.0), trial(75.0, -1.0)]) == []


@pytest.mark.parametrize("grid", [{"x": (1, 2), "y": (1, 2)}, {"x": (2, 1)}])
def test_a_bisection_needs_one_ascending_parameter(grid):
    with pytest.raises(GossamerError, match="for a bisection"):
        Bisection("s", grid, trials=1)


def test_a_grid_proposes_what_is_left_of_its_budget():
    study = Study("s", {"x": range(5)}, trials=3)
    first, second, third = study.points()[:3]
    assert study.next_points([]) == [first, second, third]
    assert study.next_points([trial(second["x"], 1.0)]) == [first, third]
