"""The trade-off between accuracy and size: one warm-started sequence of targets, or every target from scratch."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from gossamer.errors import GossamerError
from gossamer.measurement import Measurement, measure
from gossamer.proximal import Path, attach
from gossamer.proximal.approach import FEWEST_STEPS, require_reachable
from gossamer.proximal.path import checked_targets
from gossamer.shrinking import shrink
from gossamer.targets import Target
from gossamer_lab.data import Dataset
from gossamer_lab.training.assembly import assemble
from gossamer_lab.training.config import TrainingConfig
from gossamer_lab.training.loop import accuracy, compact, to_channels_last, train_epoch
from gossamer_lab.training.progress import Progress

__all__ = ["PathSettings", "TradeoffPoint", "from_scratch", "train_to_target", "warm_started"]


# Learning rate of the short trainings of a path, relative to that of a training from scratch. Of 0.25, 0.5, 1 and 1.5
# the largest was the most accurate on validation images of PENDIGITS; experiments/path tests it on other images.
_WARM_RATE = 1.5


@dataclass(frozen=True)
class PathSettings:
    """A path over the sizes of one kind of target.

    Attributes:
        config: Configuration of a training from scratch. The dense network of the path takes a fifth of its epochs.
        kind: Kind of the targets.
        sizes: The targets, from large to small.
        epochs_each: Epochs for each target of the path. None: so many that the whole path takes a fifth of the epochs
            of all trainings from scratch, but enough to reach a target.
    """

    config: TrainingConfig
    kind: str
    sizes: Sequence[float]
    epochs_each: int | None

    @property
    def dense_epochs(self) -> int:
        """Epochs of the dense network."""
        return max(1, round(self.config.epochs / 5))

    def targets(self) -> list[Target]:
        """Return the targets."""
        return [Target(**{self.kind: size}) for size in self.sizes]  # type: ignore[arg-type]

    def checked(self, dataset: Dataset) -> PathSettings:
        """Settle the epochs for each target.

        Raises:
            GossamerError: If a target is none, does not fall, or is out of reach; or if the epochs have too few steps.
        """
        targets = checked_targets(self.targets())
        _, regularizer = assemble(self.config, dataset)
        assert regularizer is not None
        require_reachable(targets[-1], regularizer)
        per_epoch = _steps_per_epoch(dataset, self.config)
        config = self.config
        left = config.epochs * len(self.sizes) / 5 - self.dense_epochs
        wanted = self.epochs_each or max(2, int(left / len(self.sizes)))
        enough = config.fewest_epochs(FEWEST_STEPS, per_epoch)
        if self.epochs_each is not None and self.epochs_each < enough:
            raise GossamerError(
                f"`--epochs-each` must be at least {enough} on {dataset.name}, where an epoch has {per_epoch} steps; "
                f"received {self.epochs_each}."
            )
        return replace(self, epochs_each=max(wanted, enough))


@dataclass(frozen=True)
class TradeoffPoint:
    """One network of the trade-off.

    Attributes:
        size: The target.
        accuracy: Accuracy on the test images.
        params_kept: Fraction of the weights that are not zero.
        flops_kept: Fraction of the MACs, those with a non-zero weight.
        dense_flops: Fraction of the MACs after shrinking.
        epochs: Epochs that were trained for it, besides those of the points before.
        seconds: Time of these epochs.
        dense_params: Fraction of the weights after shrinking; NaN in files of earlier versions.
    """

    size: float
    accuracy: float
    params_kept: float
    flops_kept: float
    dense_flops: float
    epochs: int
    seconds: float
    dense_params: float = math.nan


def warm_started(
    settings: PathSettings, dataset: Dataset, arithmetic: torch.dtype = torch.float32
) -> Iterator[tuple[TradeoffPoint, nn.Module]]:
    """Train the dense network, then reach one target after the other; yield each with its shrunk network."""
    config = settings.config
    model, regularizer = assemble(config, dataset)
    assert regularizer is not None
    full = measure(model, dataset.example)
    to_channels_last(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=config.learning_rate, momentum=config.momentum)
    started = time.perf_counter()
    _train(model, dataset, optimizer, replace(config, epochs=settings.dense_epochs, hold_fraction=0.0), arithmetic)
    yield _point(1.0, model, dataset, full, settings.dense_epochs, started)

    assert settings.epochs_each is not None
    short = replace(config, epochs=settings.epochs_each, learning_rate=_WARM_RATE * config.learning_rate)
    steps = short.sparsify_epochs * _steps_per_epoch(dataset, config)
    recovery = short.hold_epochs * _steps_per_epoch(dataset, config)
    path = Path(optimizer, regularizer, settings.targets(), steps=steps, recovery=recovery)
    for number, (point, size) in enumerate(zip(path, settings.sizes, strict=True), 1):
        del point
        started = time.perf_counter()
        shuffled = replace(short, seed=config.seed + number * 1_000)
        _train(model, dataset, optimizer, shuffled, arithmetic)
        yield _point(size, model, dataset, full, short.epochs, started)


def from_scratch(
    settings: PathSettings, dataset: Dataset, arithmetic: torch.dtype = torch.float32
) -> Iterator[tuple[TradeoffPoint, nn.Module]]:
    """Train a network from scratch for every target; yield each with its shrunk network."""
    for target in settings.targets():
        yield train_to_target(settings.config, target, dataset, arithmetic)


def train_to_target(
    config: TrainingConfig, target: Target, dataset: Dataset, arithmetic: torch.dtype = torch.float32
) -> tuple[TradeoffPoint, nn.Module]:
    """Train a network to a target; return its place in the trade-off, and the shrunk network."""
    model, regularizer = assemble(config, dataset)
    assert regularizer is not None
    full = measure(model, dataset.example)
    to_channels_last(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=config.learning_rate, momentum=config.momentum)
    steps = config.sparsify_epochs * _steps_per_epoch(dataset, config)
    handle = attach(optimizer, regularizer, target=target, steps=steps)
    started = time.perf_counter()
    _train(model, dataset, optimizer, config, arithmetic)
    handle.remove()
    return _point(target.value, model, dataset, full, config.epochs, started)


def _train(
    model: nn.Module,
    dataset: Dataset,
    optimizer: torch.optim.Optimizer,
    config: TrainingConfig,
    arithmetic: torch.dtype = torch.float32,
) -> None:
    progress = Progress()
    while progress.phase != "done":
        loss, _ = train_epoch(model, dataset, optimizer, config, progress, arithmetic)
        progress = progress.after(loss, config)
        # Not before: until the target is reached, a unit that is zero may come back.
        if config.compact_every and progress.phase == "hold" and progress.phase_epoch == 0:
            compact(model, dataset, optimizer, measure(model, dataset.example))


def _point(
    size: float, model: nn.Module, dataset: Dataset, full: Measurement, epochs: int, started: float
) -> tuple[TradeoffPoint, nn.Module]:
    seconds = time.perf_counter() - started
    small = shrink(model, dataset.example, form="module")
    measured = measure(small, dataset.example)
    left = measured.against(full)
    point = TradeoffPoint(
        size=size,
        accuracy=accuracy(model, dataset.test_images, dataset.test_labels),
        params_kept=left.params_kept,
        flops_kept=left.flops_kept,
        dense_flops=measured.total.macs / full.total.macs,
        dense_params=measured.total.weights / full.total.weights,
        epochs=epochs,
        seconds=seconds,
    )
    return point, small


def _steps_per_epoch(dataset: Dataset, config: TrainingConfig) -> int:
    return math.ceil(len(dataset.train_images) / config.batch_size)
