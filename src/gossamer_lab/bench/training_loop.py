"""Benchmark `training-loop`: our training loop against a minimal one, and a profile of ours."""

from __future__ import annotations

import cProfile
import pstats
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import CosineAnnealingLR

from gossamer.proximal import attach
from gossamer.regularizers import integrated_tl1
from gossamer_lab.bench.result import Machine, Result, Value
from gossamer_lab.bench.timing import time_interleaved
from gossamer_lab.data import Dataset, digits
from gossamer_lab.networks import DigitsNetwork
from gossamer_lab.training import Progress, TrainingConfig, open_run, train, train_epoch

__all__ = ["training_loop"]

_PARTS = {  # (path suffix, function) -> row of the table
    ("torch/autograd/graph.py", "_engine_run_backward"): "backward pass",
    ("networks/digits.py", "forward"): "forward pass, including evaluation",
    ("torch/optim/sgd.py", "step"): "step of the optimizer",
    ("proximal/handle.py", "after_step"): "proximal step",
    ("data/dataset.py", "training_batch"): "batching and augmentation",
    ("measurement/measure.py", "measure"): "`measure`, once per epoch",
    ("training/checkpoint.py", "save_checkpoint"): "checkpoint, every two seconds",
    ("training/directory.py", "append_metrics"): "metrics, once per epoch",
}


def training_loop(epochs: int = 60) -> Result:
    """Time epochs of `gossamer_lab.training.train` on DIGITS and of a minimal loop, and profile ours.

    Args:
        epochs: Epochs of each, and of the profile.
    """
    data = digits()
    with tempfile.TemporaryDirectory() as folder:
        own = _own_epochs(data, epochs + 2, Path(folder, "timed"))
        steps, test = _minimal_loop(data)
        other_steps, _ = _minimal_loop(data)  # a separate network: one that runs twice per round would stay cached
        candidates = {
            "ours": own,
            "minimal": lambda: (steps(), test()),
            "steps, ours": _own_steps(data),
            "steps, minimal loop": other_steps,
        }
        times = time_interleaved(candidates, seconds=0.0, least=epochs)
        shares = _profile(_own_epochs(data, epochs + 2, Path(folder, "profiled")), epochs)
    rows: list[dict[str, Value]] = [
        {"part": "epoch, ours", **times["ours"].cells(), "% of ours": 100.0},
        {
            "part": "epoch, minimal loop: cosine schedule, running loss and accuracy, test; no `measure`, no files",
            **times["minimal"].cells(),
            "% of ours": 100 * times["minimal"].median / times["ours"].median,
        },
    ]
    rows += [
        {
            "part": part,
            **times[part].cells(),
            "% of ours": 100 * times[part].median / times["ours"].median,
        }
        for part in ("steps, ours", "steps, minimal loop")
    ]
    rows += [{"part": part, "ms": None, "ms q25": None, "ms q75": None, "% of ours": share} for part, share in shares]
    return Result(
        name="training-loop",
        title="our training loop on DIGITS against a minimal one, and a profile of ours",
        note="Rows without times are from Python's profiler, which overstates the share of Python code.",
        machine=Machine.here(),
        rows=tuple(rows),
    )


def _own_epochs(data: Dataset, epochs: int, folder: Path) -> Callable[[], object]:
    torch.manual_seed(0)
    model = DigitsNetwork()
    config = TrainingConfig(dataset="digits", regularizer="integrated-tl1", strength=1e-3, epochs=2 * epochs)
    run = open_run(folder, config)
    training: Iterator[object] = train(model, data, integrated_tl1(model, 1e-3), config, run)
    return lambda: next(training)


def _own_steps(data: Dataset) -> Callable[[], object]:
    torch.manual_seed(0)
    model = DigitsNetwork()
    config = TrainingConfig(dataset="digits", regularizer="integrated-tl1", strength=1e-3, epochs=10_000)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    attach(optimizer, integrated_tl1(model, 1e-3))
    return lambda: train_epoch(model, data, optimizer, config, Progress())


def _minimal_loop(data: Dataset) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return the training steps of an epoch, and the evaluation, of a minimal loop."""
    torch.manual_seed(0)
    model: nn.Module = DigitsNetwork()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scheduler = CosineAnnealingLR(optimizer, 10_000)
    attach(optimizer, integrated_tl1(model, 1e-3))

    def steps() -> tuple[float, int]:
        model.train()
        total, correct = 0.0, 0
        for batch in torch.split(torch.randperm(len(data.train_images)), 64):
            images, labels = data.training_batch(batch)
            logits = model(images)
            loss = cross_entropy(logits, labels)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            scheduler.step()
            total += loss.item() * len(batch)
            correct += int((logits.argmax(1) == labels).sum())
        return total, correct

    def test() -> float:
        model.eval()
        with torch.inference_mode():
            return float((model(data.test_images).argmax(1) == data.test_labels).double().mean())

    return steps, test


def _profile(epoch: Callable[[], object], epochs: int) -> list[tuple[str, float]]:
    """Return the parts with their percentage of the time; the last is the remainder."""
    epoch()
    profile = cProfile.Profile()
    profile.enable()
    for _ in range(epochs):
        epoch()
    profile.disable()
    stats = pstats.Stats(profile)
    seconds = dict.fromkeys(_PARTS.values(), 0.0)
    for (file, _, function), (_, _, _, cumulative, _) in stats.stats.items():  # type: ignore[attr-defined]
        for (path, name), part in _PARTS.items():
            if file.endswith(path) and function == name:
                seconds[part] += cumulative
    total: float = stats.total_tt  # type: ignore[attr-defined]
    rest = total - sum(seconds.values())
    return [(part, 100 * own / total) for part, own in {**seconds, "other": rest}.items()]
