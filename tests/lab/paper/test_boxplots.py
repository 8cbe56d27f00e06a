from __future__ import annotations

from pathlib import Path

import pytest

from gossamer.errors import GossamerError
from gossamer_lab.paper.boxplots import boxplots_figure
from gossamer_lab.paper.methods import METHODS, TABLE
from gossamer_lab.paper.outcomes import Job, Outcome
from gossamer_lab.training import RunResult, TrainingConfig

KEYS = [method.key for method in TABLE]


def outcomes(dataset: str, seeds: int = 3, keys: list[str] | None = None, least: float = 0.1) -> list[Outcome]:
    made = []
    for key in keys or [*KEYS, "dense"]:
        for seed in range(seeds):
            config = TrainingConfig(dataset, METHODS[key].regularizer, seed=seed)
            kept = least + 0.02 * seed
            result = RunResult(
                dataset, config.regularizer, 0.0, seed, 1, 0.97 + 0.001 * seed, kept, 2 * kept, 1.0, {}, {}, versions={}
            )
            made.append(Outcome(Job(key, config), result, ()))
    return made


def test_two_lines_of_three_panels(tmp_path: Path) -> None:
    path = tmp_path / "new" / "box.png"
    figure = boxplots_figure(outcomes("cifar-10") + outcomes("pendigits") + outcomes("mnist"), path)
    assert path.read_bytes().startswith(b"\x89PNG\r\n")
    assert path.stat().st_size > 20_000
    assert [axes.get_title() for axes in figure.axes] == ["PENDIGITS"] * 3 + ["CIFAR-10"] * 3
    labels = ["test accuracy (%)", "MACs kept (%)", "weights kept (%)"]
    assert [axes.get_ylabel() for axes in figure.axes] == labels * 2


def test_every_run_is_a_point_in_percent_and_counted(tmp_path: Path) -> None:
    figure = boxplots_figure(outcomes("pendigits"), tmp_path / "box.png")
    assert len(figure.axes) == 3
    accuracy, flops, params = figure.axes
    assert [label.get_text() for label in accuracy.get_xticklabels()] == [
        "l1\nn = 3",
        "SGL\nn = 3",
        "CGES\nn = 3",
        "ITL\nn = 3",
    ]
    for axes, values in ((accuracy, [97, 97.1, 97.2]), (flops, [20, 24, 28]), (params, [10, 12, 14])):
        points = [line for line in axes.get_lines() if line.get_marker() in ("s", "^", "v", "o")]
        assert len(points) == 4
        for line in points:
            assert list(line.get_ydata()) == pytest.approx(values)
            assert len(set(line.get_xdata())) == 3
        assert len({line.get_marker() for line in points}) == 4
        assert len({box.get_hatch() for box in axes.patches}) == 4


def test_missing_methods_and_single_and_collapsed_runs_are_drawn(tmp_path: Path) -> None:
    figure = boxplots_figure(outcomes("cifar-10", seeds=1, keys=["itl"], least=0.0), tmp_path / "box.png")
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["ITL\nn = 1"]
    assert figure.axes[1].get_ylim() == (0, 1)


def test_other_data_sets_are_refused(tmp_path: Path) -> None:
    with pytest.raises(GossamerError, match="pendigits or cifar-10"):
        boxplots_figure(outcomes("mnist"), tmp_path / "box.png")
    assert list(tmp_path.iterdir()) == []
