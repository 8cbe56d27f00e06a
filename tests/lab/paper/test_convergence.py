from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gossamer.errors import GossamerError
from gossamer_lab.paper import convergence
from gossamer_lab.paper.convergence import convergence_figure
from gossamer_lab.paper.curves import Curve
from gossamer_lab.paper.outcomes import Job
from gossamer_lab.training import TrainingConfig

PNG = b"\x89PNG\r\n"
CONFIG = TrainingConfig("digits", "l1", strength=2e-3)


def points(*accuracies: float, every: int = 500) -> tuple[dict[str, float], ...]:
    return tuple(
        {"step": every * number, "accuracy": value, "params_kept": 0.5} for number, value in enumerate(accuracies)
    )


def test_the_figure_shows_the_mean_and_the_band(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    monkeypatch.setattr(convergence, "save", lambda figure, path: drawn.append(figure))
    # The second seed went on for longer.
    curves = [Curve(Job("itl", CONFIG), points(0.1, 0.8, 0.9))]
    curves.append(Curve(Job("itl", replace(CONFIG, seed=1)), points(0.1, 0.6, 0.7, 0.8)))
    curves.append(Curve(Job("l2", CONFIG), points(0.1, 0.2, 0.3)))
    convergence_figure(curves, tmp_path / "figure.png")
    axes = drawn[0].axes[0]
    lines = {line.get_label(): line for line in axes.lines}
    assert list(lines["ITL"].get_ydata()) == pytest.approx([10, 70, 80])
    assert list(lines["ITL"].get_xdata()) == [0, 500, 1000]
    assert list(lines["l2"].get_ydata()) == pytest.approx([10, 20, 30])
    assert len(axes.collections) == 1
    assert [1000, 1000] in [list(line.get_xdata()) for line in axes.lines]


def test_the_figure_is_a_file_of_its_own(tmp_path: Path) -> None:
    curve = Curve(Job("cges", CONFIG), points(0.1, 0.8))
    assert convergence_figure([curve], tmp_path / "new" / "figure.png").read_bytes().startswith(PNG)
    with pytest.raises(GossamerError, match="no curves"):
        convergence_figure([], tmp_path / "figure.png")
    uneven = [Curve(Job("l1", replace(CONFIG, seed=seed)), points(0.1, 0.5, every=10 + seed)) for seed in (0, 1)]
    with pytest.raises(GossamerError, match="different steps"):
        convergence_figure(uneven, tmp_path / "figure.png")
