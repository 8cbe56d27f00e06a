"""Benchmark `whole-training`: the effect of removing dead units during training."""

from __future__ import annotations

import time

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import CosineAnnealingLR

from gossamer.measurement import measure
from gossamer.proximal import attach, warm_up
from gossamer.regularizers import integrated_tl1
from gossamer.shrinking import shrink_
from gossamer_lab.bench.result import Machine, Result, Value
from gossamer_lab.data import Dataset, digits

__all__ = ["whole_training"]

_BATCH = 64


def whole_training(epochs: int = 30, width: int = 64) -> Result:
    """Train a convolutional network on DIGITS in three ways from one initialisation, interleaved by epochs.

    Args:
        epochs: Epochs of each training.
        width: Filters of the first convolution; the second has 2 times, the hidden layer 8 times as many units.
    """
    data = digits()
    trainings = [
        _Training("dense", data, epochs, width, regularized=False, compacted=False),
        _Training("regularized", data, epochs, width, regularized=True, compacted=False),
        _Training("regularized, dead units removed every epoch", data, epochs, width, regularized=True, compacted=True),
    ]
    for _ in range(epochs):
        for training in trainings:
            training.epoch()
    rows = [training.row() for training in trainings]
    return Result(
        name="whole-training",
        title=f"training on DIGITS for {epochs} epochs",
        note=(
            "seconds: training steps and removal of dead units, without evaluation. training MACs: of all forward "
            "passes, at the current sizes."
        ),
        machine=Machine.here(),
        rows=tuple(
            {**row, "time vs dense": t.seconds / trainings[0].seconds} for row, t in zip(rows, trainings, strict=True)
        ),
    )


class _Training:
    """A training that runs epoch by epoch and accumulates its cost."""

    def __init__(
        self, name: str, data: Dataset, epochs: int, width: int, *, regularized: bool, compacted: bool
    ) -> None:
        torch.manual_seed(0)
        self.seconds, self.macs = 0.0, 0
        self._name, self._data, self._compacted = name, data, compacted
        self._model = _network(data, width)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.05, momentum=0.9)
        self._scheduler = CosineAnnealingLR(self._optimizer, epochs)
        if regularized:
            steps = epochs * len(data.train_images) // _BATCH
            attach(self._optimizer, integrated_tl1(self._model, 1e-3), schedule=warm_up(steps // 5))

    def epoch(self) -> None:
        """Train for one epoch; then remove dead units, if requested."""
        self.macs += len(self._data.train_images) * measure(self._model, self._data.example).total.macs
        started = time.perf_counter()
        _epoch(self._model, self._optimizer, self._data)
        self._scheduler.step()
        if self._compacted:
            shrink_(self._model, self._data.example, optimizer=self._optimizer)
        self.seconds += time.perf_counter() - started

    def row(self) -> dict[str, Value]:
        """Return the row of the table."""
        measurement = measure(self._model, self._data.example)
        return {
            "training": self._name,
            "seconds": self.seconds,
            "accuracy": _accuracy(self._model, self._data),
            "training MACs": self.macs,
            "final weights": measurement.total.weights,
            "non-zero": measurement.total.nonzeros,
        }


def _network(data: Dataset, width: int) -> nn.Module:
    channels, height, length = data.input_shape
    return nn.Sequential(
        nn.Conv2d(channels, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(2 * width * (height // 2) * (length // 2), 8 * width),
        nn.ReLU(),
        nn.Linear(8 * width, data.classes),
    )


def _epoch(model: nn.Module, optimizer: torch.optim.Optimizer, data: Dataset) -> None:
    model.train()
    for batch in torch.split(torch.randperm(len(data.train_images)), _BATCH):
        images, labels = data.training_batch(batch)
        optimizer.zero_grad()
        torch.autograd.backward(cross_entropy(model(images), labels))
        optimizer.step()


@torch.inference_mode()
def _accuracy(model: nn.Module, data: Dataset) -> float:
    model.eval()
    return float((model(data.test_images).argmax(1) == data.test_labels).double().mean())
