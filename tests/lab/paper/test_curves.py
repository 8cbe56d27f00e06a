from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gossamer.errors import GossamerError
from gossamer.measurement import measure
from gossamer.proximal import attach
from gossamer_lab.data import Dataset
from gossamer_lab.paper import convergence
from gossamer_lab.paper.convergence import (
    Curve,
    convergence_curve,
    convergence_figure,
    curves_of,
    read_curves,
    write_curves,
)
from gossamer_lab.paper.outcomes import Job
from gossamer_lab.paper.runner import Place
from gossamer_lab.training import Progress, TrainingConfig, accuracy, assemble, train_epoch

PNG = b"\x89PNG\r\n"
CONFIG = TrainingConfig("digits", "l1", strength=2e-3, batch_size=16, learning_rate=0.05, momentum=0.5)


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    """Images of 8x8 pixels with one bright row each, which is their class; varied, so that random numbers matter."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(80) % 8
    images = 0.2 * torch.rand(80, 1, 8, 8, generator=generator)
    images[torch.arange(80), 0, labels] += 1
    return Dataset(
        "digits", images[:56], labels[:56], images[56:], labels[56:], 10, vary=lambda x: x + 0.1 * torch.rand_like(x)
    )


def points(*accuracies: float, every: int = 500) -> tuple[dict[str, float], ...]:
    return tuple(
        {"step": every * number, "accuracy": value, "params_kept": 0.5} for number, value in enumerate(accuracies)
    )


def test_is_evaluated_first_every_so_many_steps_and_last(dataset: Dataset) -> None:
    curve = convergence_curve(CONFIG, dataset, steps=7, every=3)
    assert [point["step"] for point in curve] == [0, 3, 6, 7]
    assert curve[0]["params_kept"] == 1
    assert all(0 <= point["accuracy"] <= 1 for point in curve)


def test_learns_and_removes_weights(dataset: Dataset) -> None:
    curve = convergence_curve(CONFIG, dataset, steps=100, every=100)
    assert curve[-1]["accuracy"] > 0.9
    assert curve[-1]["params_kept"] < 0.9
    dense = convergence_curve(replace(CONFIG, regularizer="none"), dataset, steps=5, every=5)
    assert dense[-1]["params_kept"] == 1


def test_is_the_training_loop_without_its_phases(dataset: Dataset) -> None:
    # So long a first phase that its learning rate does not move at all, and no warm-up.
    config = replace(CONFIG, epochs=10**9, hold_fraction=0.0, warm_up_fraction=0.0)
    model, regularizer = assemble(config, dataset)
    optimizer = torch.optim.SGD(model.parameters(), lr=config.learning_rate, momentum=config.momentum)
    assert regularizer is not None
    attach(optimizer, regularizer)
    expected = []
    progress = Progress()
    for _ in range(3):
        train_epoch(model, dataset, optimizer, config, progress)
        progress = progress.after(1.0, config)
        right = accuracy(model, dataset.test_images, dataset.test_labels)
        expected.append((right, measure(model, dataset.example).params_kept))

    curve = convergence_curve(config, dataset, steps=12, every=4)
    assert [(point["accuracy"], point["params_kept"]) for point in curve[1:]] == expected


def test_depends_on_its_seed_and_on_no_other_random_numbers(dataset: Dataset) -> None:
    first = convergence_curve(CONFIG, dataset, 8, 1)
    torch.rand(5)
    assert convergence_curve(CONFIG, dataset, 8, 1) == first
    assert convergence_curve(replace(CONFIG, seed=1), dataset, 8, 1) != first


def test_refuses_nonsense_and_divergence(dataset: Dataset) -> None:
    with pytest.raises(GossamerError, match="at least 1; received 0 and 5"):
        convergence_curve(CONFIG, dataset, 0, 5)
    with pytest.raises(GossamerError, match="diverged by step"):
        convergence_curve(replace(CONFIG, learning_rate=1e9, regularizer="none"), dataset, 20, 5)


def test_curves_survive_the_file_in_one_order(tmp_path: Path) -> None:
    curves = [Curve(Job("l1", replace(CONFIG, seed=seed)), points(0.1, 0.5)) for seed in (0, 1)]
    curves.append(Curve(Job("itl", CONFIG), points(0.1, 0.9)))
    path = tmp_path / "new" / "convergence.jsonl"
    write_curves(path, curves)
    first = path.read_bytes()
    write_curves(path, reversed(curves))
    assert path.read_bytes() == first
    assert len(first.splitlines()) == 3
    assert read_curves(path) == [curves[2], curves[0], curves[1]]
    assert read_curves(tmp_path / "missing") == []
    path.write_bytes(first[:-20])
    with pytest.raises(GossamerError, match="is damaged"):
        read_curves(path)


def test_only_missing_curves_are_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = []

    def here(work: Callable[..., Curve], jobs: list[Job], workers: int, tell: Callable[[str], None]) -> list[Curve]:
        trained.extend(jobs)
        return [work(job, tell) for job in jobs]

    # The processes have tests of their own.
    monkeypatch.setattr(convergence, "in_processes", here)
    monkeypatch.setattr(convergence, "images_for", lambda config, place: None)
    monkeypatch.setattr(convergence, "convergence_curve", lambda *_: list(points(0.1, 0.7, every=5)))
    place, file = Place(tmp_path, tmp_path, tmp_path), tmp_path / "curves.jsonl"
    first, second = Job("l1", CONFIG), Job("itl", CONFIG)
    told: list[str] = []
    curves_of([first], 5, 5, file, place, told.append)
    assert told == ["digits l1 seed 0, 5 steps: accuracy 70.00 %"]
    curves = curves_of([first, second], 5, 5, file, place)
    assert [curve.job for curve in curves] == trained == [first, second]
    assert read_curves(file) == [curves[1], curves[0]]
    # Measured at other steps it is another curve.
    curves_of([second], 10, 5, file, place)
    assert trained[2:] == [second]


def test_the_figure_shows_the_mean_and_the_band(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    monkeypatch.setattr(convergence, "save", lambda figure, path: drawn.append(figure))
    # The second seed went on for longer.
    curves = [Curve(Job("itl", CONFIG), points(0.1, 0.8, 0.9))]
    curves.append(Curve(Job("itl", replace(CONFIG, seed=1)), points(0.1, 0.6, 0.7, 0.8)))
    curves.append(Curve(Job("l2", CONFIG), points(0.1, 0.2, 0.3)))
    write_curves(tmp_path / "file", curves)
    convergence_figure(tmp_path / "file", tmp_path / "figure.png")
    axes = drawn[0].axes[0]
    lines = {line.get_label(): line for line in axes.lines}
    assert list(lines["ITL"].get_ydata()) == pytest.approx([10, 70, 80])
    assert list(lines["ITL"].get_xdata()) == [0, 500, 1000]
    assert list(lines["l2"].get_ydata()) == pytest.approx([10, 20, 30])
    assert len(axes.collections) == 1
    assert [1000, 1000] in [list(line.get_xdata()) for line in axes.lines]


def test_the_figure_is_a_file_of_its_own(tmp_path: Path) -> None:
    write_curves(tmp_path / "file", [Curve(Job("cges", CONFIG), points(0.1, 0.8))])
    assert convergence_figure(tmp_path / "file", tmp_path / "new" / "figure.png").read_bytes().startswith(PNG)
    with pytest.raises(GossamerError, match="no curves"):
        convergence_figure(tmp_path / "missing", tmp_path / "figure.png")
    uneven = [Curve(Job("l1", replace(CONFIG, seed=seed)), points(0.1, 0.5, every=10 + seed)) for seed in (0, 1)]
    write_curves(tmp_path / "file", uneven)
    with pytest.raises(GossamerError, match="different steps"):
        convergence_figure(tmp_path / "file", tmp_path / "figure.png")
