from __future__ import annotations

import math

import pytest

from gossamer import GossamerError
from gossamer.sweeps import Study

GRID = {"x": [0, 1, 2], "y": [-1.0, 0.5]}


def test_points_are_the_whole_grid():
    points = Study("s", GRID, trials=6).points()
    assert len(points) == 6
    assert {(point["x"], point["y"]) for point in points} == {(x, y) for x in GRID["x"] for y in GRID["y"]}


def test_the_seed_alone_decides_the_order():
    grid = {"x": range(10), "y": range(10)}
    points = Study("s", grid, trials=1, seed=3).points()
    assert points == Study("other", dict(reversed(grid.items())), trials=50, seed=3).points()
    assert points != Study("s", grid, trials=1, seed=4).points()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": ""}, r"`Study\(name=...\)` must be text"),
        ({"name": "n" * 513}, "must be text of 1 to 512"),
        ({"grid": {}}, r"`Study\(grid=...\)` must name a parameter; received {}"),
        ({"grid": {"x": []}}, r"`Study\(grid\['x'\]=...\)` must hold a value; received \[\]"),
        ({"grid": {"x": [1.0, math.nan]}}, "must hold finite numbers"),
        ({"grid": {"x": "12"}}, "must hold finite numbers"),
        ({"grid": {"x": [1, 1.0]}}, "must hold every value once"),
        ({"grid": {1: [1.0]}}, "must name parameters by text"),
        ({"trials": 0}, r"must be a whole number from 1 to 6, the points of the grid; received 0"),
        ({"trials": 7}, "from 1 to 6"),
        ({"trials": 2.0}, "from 1 to 6"),
        ({"seed": -1}, r"`Study\(seed=...\)` must be a whole number, not negative; received -1"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(GossamerError, match=message):
        Study(**{"name": "s", "grid": GRID, "trials": 2, **arguments})
