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
from gossamer_lab.paper import curves
from gossamer_lab.paper.curves import Curve, CurveFiles, convergence_curve, read_curves, write_curves
from gossamer_lab.paper.outcomes import Job
from gossamer_lab.paper.workspace import Workspace
from gossamer_lab.training import Progress, TrainingConfig, accuracy, assemble, train_epoch

CONFIG = TrainingConfig("digits", "l1", strength=2e-3, batch_size=16, learning_rate=0.05, momentum=0.5)


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    """Images of 8x8 pixels with one bright row each, which is their class; augmented, so that random numbers matter."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(80) % 8
    images = 0.2 * torch.rand(80, 1, 8, 8, generator=generator)
    images[torch.arange(80), 0, labels] += 1
    return Dataset(
        "digits", images[:56], labels[:56], images[56:], labels[56:], 10, augment=lambda x: x + 0.1 * torch.rand_like(x)
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
    written = [Curve(Job("l1", replace(CONFIG, seed=seed)), points(0.1, 0.5)) for seed in (0, 1)]
    written.append(Curve(Job("itl", CONFIG), points(0.1, 0.9)))
    path = tmp_path / "new" / "convergence.jsonl"
    write_curves(path, written)
    first = path.read_bytes()
    write_curves(path, reversed(written))
    assert path.read_bytes() == first
    assert len(first.splitlines()) == 3
    assert read_curves(path) == [written[2], written[0], written[1]]
    assert read_curves(tmp_path / "missing") == []
    path.write_bytes(first[:-20])
    with pytest.raises(GossamerError, match="is corrupt"):
        read_curves(path)


def test_only_missing_curves_are_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = []

    def here(
        work: Callable[..., Curve], jobs: list[Job], workers: int, on_progress: Callable[[str], None]
    ) -> list[Curve]:
        trained.extend(jobs)
        return [work(job, on_progress) for job in jobs]

    # The processes have tests of their own.
    monkeypatch.setattr(curves, "run_in_processes", here)
    monkeypatch.setattr(curves, "dataset_for", lambda config, workspace: None)
    monkeypatch.setattr(curves, "convergence_curve", lambda *_: list(points(0.1, 0.7, every=5)))
    workspace, file = Workspace(tmp_path, tmp_path, tmp_path), tmp_path / "curves.jsonl"
    first, second = Job("l1", CONFIG), Job("itl", CONFIG)
    messages: list[str] = []
    CurveFiles(5, 5).make([first], file, workspace, messages.append)
    assert messages == ["digits l1 seed 0, 5 steps: accuracy 70.00 %"]
    assert CurveFiles(5, 5).missing([first, second], file) == [second]
    made = CurveFiles(5, 5).make([first, second], file, workspace)
    assert [curve.job for curve in made] == trained == [first, second]
    assert read_curves(file) == [made[1], made[0]]
    # A curve with other steps is another curve.
    CurveFiles(10, 5).make([second], file, workspace)
    assert trained[2:] == [second]
