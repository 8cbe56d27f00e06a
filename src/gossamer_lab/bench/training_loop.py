"""Question g: where does the time of our own training loop go, and is a hand-written loop any faster?"""

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
from gossamer_lab.bench.timing import take_turns
from gossamer_lab.data import Dataset, digits
from gossamer_lab.networks import DigitsNetwork
from gossamer_lab.training import Progress, RunDirectory, TrainingConfig, train, train_epoch

__all__ = ["training_loop"]

_PARTS = {  # (end of the file's path, function) -> what it is, in the order of the table
    ("torch/autograd/graph.py", "_engine_run_backward"): "backward pass",
    ("networks/digits.py", "forward"): "forward pass, with that of the tests",
    ("torch/optim/sgd.py", "step"): "the optimizer's own step",
    ("proximal/handle.py", "_after_step"): "the proximal step",
    ("data/dataset.py", "training_batch"): "taking and shifting the images",
    ("measurement/measure.py", "measure"): "measuring what is left, once an epoch",
    ("training/checkpoint.py", "save_checkpoint"): "the checkpoint, every two seconds",
    ("training/directory.py", "append_metrics"): "the metrics, once an epoch",
}


def training_loop(epochs: int = 60) -> Result:
    """Epochs of `gossamer_lab.training.train` on DIGITS in turn with those of a loop by hand, and a profile of ours.

    Args:
        epochs: of each, and of the profile.
    """
    data = digits()
    with tempfile.TemporaryDirectory() as folder:
        own = _own_epochs(data, epochs + 2, Path(folder, "timed"))
        steps, test = _by_hand(data)
        candidates = {
            "ours": own,
            "by hand": lambda: (steps(), test()),
            "steps of ours": _own_steps(data),
            "steps by hand": _by_hand(data)[
                0
            ],  # a network of its own: one that runs twice in a turn stays in the cache
        }
        times = take_turns(candidates, seconds=0.0, least=epochs)
        shares = _profile(_own_epochs(data, epochs + 2, Path(folder, "profiled")), epochs)
    rows: list[dict[str, Value]] = [
        {"part": "an epoch of ours", **times["ours"].cells(), "% of ours": 100.0},
        {
            "part": "an epoch by hand: cosine rate, running loss and accuracy, test; no measuring, no files",
            **times["by hand"].cells(),
            "% of ours": 100 * times["by hand"].median / times["ours"].median,
        },
    ]
    rows += [
        {
            "part": f"of that, the {steps}",
            **times[steps].cells(),
            "% of ours": 100 * times[steps].median / times["ours"].median,
        }
        for steps in ("steps of ours", "steps by hand")
    ]
    rows += [{"part": part, "ms": None, "ms low": None, "ms high": None, "% of ours": share} for part, share in shares]
    return Result(
        question="g",
        title="our training loop on DIGITS against one written by hand, and where its time goes",
        note="The parts are from a run under Python's profiler, which makes Python's share look larger than it is.",
        machine=Machine.here(),
        rows=tuple(rows),
    )


def _own_epochs(data: Dataset, epochs: int, folder: Path) -> Callable[[], object]:
    folder.mkdir()
    torch.manual_seed(0)
    model = DigitsNetwork()
    config = TrainingConfig(dataset="digits", regularizer="integrated-tl1", strength=1e-3, epochs=2 * epochs)
    training: Iterator[object] = train(model, data, integrated_tl1(model, 1e-3), config, RunDirectory(folder))
    return lambda: next(training)


def _own_steps(data: Dataset) -> Callable[[], object]:
    torch.manual_seed(0)
    model = DigitsNetwork()
    config = TrainingConfig(dataset="digits", regularizer="integrated-tl1", strength=1e-3, epochs=10_000)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    attach(optimizer, integrated_tl1(model, 1e-3))
    return lambda: train_epoch(model, data, optimizer, config, Progress())


def _by_hand(data: Dataset) -> tuple[Callable[[], object], Callable[[], object]]:
    """An epoch of steps, and the test after it."""
    torch.manual_seed(0)
    model: nn.Module = DigitsNetwork()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scheduler = CosineAnnealingLR(optimizer, 10_000)
    attach(optimizer, integrated_tl1(model, 1e-3))

    def steps() -> tuple[float, int]:
        model.train()
        total, right = 0.0, 0
        for batch in torch.split(torch.randperm(len(data.train_images)), 64):
            images, labels = data.training_batch(batch)
            logits = model(images)
            loss = cross_entropy(logits, labels)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            scheduler.step()
            total += loss.item() * len(batch)
            right += int((logits.argmax(1) == labels).sum())
        return total, right

    def test() -> float:
        model.eval()
        with torch.inference_mode():
            return float((model(data.test_images).argmax(1) == data.test_labels).double().mean())

    return steps, test


def _profile(epoch: Callable[[], object], epochs: int) -> list[tuple[str, float]]:
    """(part, its % of the time); the last part is all that is not in one of the others."""
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
    return [(part, 100 * own / total) for part, own in {**seconds, "all else": rest}.items()]
