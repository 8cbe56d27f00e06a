from __future__ import annotations

from pathlib import Path

import pytest

from gossamer.errors import GossamerError
from gossamer_lab.paper import effect_of_a
from gossamer_lab.paper.effect_of_a import effect_of_a_figure, effect_of_a_table
from gossamer_lab.paper.outcomes import Job, Outcome
from gossamer_lab.reporting.style import SHAPES
from gossamer_lab.training import EpochMetrics, RunResult, TrainingConfig

PNG = b"\x89PNG\r\n"


def outcome(
    key: str, seed: int, accuracy: float, kept: float = 0.1, epochs: int = 6, strength: float = 1e-3
) -> Outcome:
    config = TrainingConfig("digits", "integrated-tl1", strength, a=1.0, s=0.1, seed=seed, epochs=epochs)
    history = tuple(
        EpochMetrics(
            epoch=epoch,
            phase="sparsify" if epoch <= 4 else "hold",
            loss=1.0,
            penalty=0.1,
            train_accuracy=0.5,
            test_accuracy=accuracy * epoch / epochs,
            params_kept=kept,
            flops_kept=2 * kept,
            units_alive={},
            learning_rate=0.1,
            seconds=0.1,
        )
        for epoch in range(1, epochs + 1)
    )
    result = RunResult("digits", "integrated-tl1", strength, seed, epochs, accuracy, kept, 2 * kept, 1.0, {}, {})
    return Outcome(Job(key, config), result, history)


def test_the_table_is_ordered_by_value_and_says_mean_and_deviation() -> None:
    outcomes = [
        outcome("100", 0, 0.9),
        outcome("0.001", 0, 0.96, strength=2e-4),
        outcome("0.001", 1, 0.98, 0.2, strength=2e-4),
    ]
    lines = effect_of_a_table(outcomes).markdown().splitlines()
    assert lines[0].startswith("| a | strength | accuracy (%)")
    assert lines[2] == "| 0.001 | 0.0002 | 97.00 ± 1.41 | 30.00 ± 14.14 | 15.00 ± 7.07 | 2 |"
    assert lines[3] == "| 100 | 0.001 | 90.00 | 20.00 | 10.00 | 1 |"
    assert len(lines) == 4


def test_the_lines_are_means_and_the_hold_phase_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    monkeypatch.setattr(effect_of_a, "save", lambda figure, path: drawn.append(figure))
    effect_of_a_figure([outcome("1", 0, 0.6), outcome("1", 1, 0.9), outcome("0.1", 0, 0.3, 0.01)], tmp_path / "a.png")
    accuracy, flops, params = drawn[0].axes
    small, middle, hold = accuracy.lines
    assert (small.get_label(), middle.get_label()) == ("a = 0.1", "a = 1")
    assert list(middle.get_ydata()) == pytest.approx([12.5, 25, 37.5, 50, 62.5, 75])
    assert list(hold.get_xdata()) == [4.5, 4.5]
    assert list(flops.lines[0].get_ydata()) == pytest.approx([2.0] * 6)
    assert list(params.lines[0].get_ydata()) == pytest.approx([1.0] * 6)


def test_six_lines_differ_without_colour() -> None:
    looks = {(style.line, style.marker) for style in SHAPES}
    assert len(looks) == len({style.line for style in SHAPES}) == 6


def test_early_ends_and_collapsed_networks_are_drawn_too(tmp_path: Path) -> None:
    keys = ["0.001", "0.01", "0.1", "1", "10", "100"]
    outcomes = [outcome(key, seed, 0.9, epochs=5 + seed) for key in keys for seed in (0, 1)]
    outcomes[0] = outcome("0.001", 0, 0.1, kept=0.0, epochs=1)
    path = effect_of_a_figure(outcomes, tmp_path / "new" / "a.png")
    assert path.read_bytes().startswith(PNG)


def test_refuses_what_it_cannot_show(tmp_path: Path) -> None:
    with pytest.raises(GossamerError, match="received 'itl'"):
        effect_of_a_table([outcome("itl", 0, 0.9)])
    with pytest.raises(GossamerError, match="up to 6 values of a; received 7"):
        effect_of_a_figure([outcome(str(a), 0, 0.9) for a in range(1, 8)], tmp_path / "a.png")
    with pytest.raises(GossamerError, match="no trainings"):
        effect_of_a_table([])
