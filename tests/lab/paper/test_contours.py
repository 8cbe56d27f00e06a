from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gossamer_lab.paper import contours
from gossamer_lab.paper.contours import EXPERIMENT, write_contours
from gossamer_lab.paper.experiments import Request
from gossamer_lab.paper.workspace import Workspace

PNG = b"\x89PNG\r\n"
SUMS = ["l0", "l1", "SCAD, λ = 0.28, a = 3.7", "MCP, λ = 0.4, γ = 2", "capped l1, a = 0.3", "log, γ = 1000"]
SUMS += ["lp, p = 1/2", "Tl1, a = 0.01", "Tl1, a = 1", "Tl1, a = 100"]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("results") / "contours" / "contours.json"
    with pytest.MonkeyPatch.context() as patch:
        # A grid with 1.0 on it, and fewer points than the figure's: 1.44 (k / 12)^2 for k = 0 .. 12.
        patch.setattr(contours, "_POINTS", 13)
        patch.setattr(contours, "_REACH", 1.44)
        write_contours(path)
    return path


@pytest.fixture(scope="module")
def content(file: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(file.read_text())
    return read


def values(content: dict[str, Any], label: str) -> list[list[float]]:
    return next(penalty["values"] for penalty in content["penalties"] if penalty["label"] == label)


def test_the_committed_file_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contours, "_value", lambda penalty, x, y: 0.12345)
    write_contours(tmp_path / "contours.json")
    assert (tmp_path / "contours.json").stat().st_size < 200_000


def test_eleven_penalties_each_on_the_whole_grid(content: dict[str, Any]) -> None:
    labels = [penalty["label"] for penalty in content["penalties"]]
    assert sorted(labels) == sorted([*SUMS, "l1 − l2"])
    assert content["points"][0] == 0
    assert content["points"][10] == 1.0
    for label in labels:
        assert [len(row) for row in values(content, label)] == [13] * 13
        # The same from both weights, and nothing at the origin.
        assert values(content, label) == [list(column) for column in zip(*values(content, label), strict=True)]
        assert values(content, label)[0][0] == 0


@pytest.mark.parametrize("label", SUMS)
def test_half_of_the_value_at_one_one_is_the_unit_ball_of_a_sum(content: dict[str, Any], label: str) -> None:
    at_one_one = next(penalty["at_one_one"] for penalty in content["penalties"] if penalty["label"] == label)
    assert values(content, label)[10][10] == at_one_one
    assert values(content, label)[0][10] == pytest.approx(at_one_one / 2, rel=1e-4)


def test_the_shapes_are_the_known_ones(content: dict[str, Any]) -> None:
    points = content["points"]
    l1, l0, tl1 = (values(content, label) for label in ("l1", "l0", "Tl1, a = 1"))
    assert l1[3][5] == pytest.approx(points[3] + points[5], rel=1e-4)
    assert (l0[0][5], l0[5][5]) == (1, 2)
    assert tl1[0][10] == 1
    # Zero on the axes, and only there.
    assert set(values(content, "l1 − l2")[0]) == {0}
    assert values(content, "l1 − l2")[1][1] > 0
    # Flat beyond the knee.
    assert values(content, "capped l1, a = 0.3")[12][12] == values(content, "capped l1, a = 0.3")[6][6] == 0.6
    # Close to l1 for large a, to l0 for small a.
    assert values(content, "Tl1, a = 100")[5][7] == pytest.approx(l1[5][7], rel=0.01)
    assert values(content, "Tl1, a = 0.01")[12][12] == pytest.approx(l0[12][12], rel=0.01)


def test_both_figures_are_drawn_from_the_file_alone(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(contours, "_value")
    results = file.parents[1]
    content = EXPERIMENT.read(Request(Workspace(results, results, results)))
    request = Request(Workspace(tmp_path, tmp_path, tmp_path))
    EXPERIMENT.write(content, request)
    figures = EXPERIMENT.output_files(request)
    assert [figure.name for figure in figures] == ["contours.png", "contours_of_a.png"]
    assert all(figure.read_bytes().startswith(PNG) for figure in figures)
