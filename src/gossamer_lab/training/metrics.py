"""What is written down after each epoch and at the end of a run."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import torch

from gossamer_lab.training.progress import Phase

__all__ = ["EpochMetrics", "RunResult", "versions"]


@dataclass(frozen=True)
class EpochMetrics:
    """One line of ``metrics.jsonl``. Fractions lie between 0 and 1.

    Attributes:
        epoch: Counted from 1.
        phase: The phase it belongs to.
        loss: Mean over the epoch's images, each in the batch in which it was trained on.
        penalty: Strength times the regularizer's value at the end of the epoch, at full strength; 0 without one.
        train_accuracy: Over the same predictions as ``loss``.
        test_accuracy: At the end of the epoch, on all test images. Nothing is ever chosen by it.
        params_kept: Weights that are not exactly zero.
        flops_kept: Multiply-adds with such weights.
        units_alive: Units that are left in each weight layer.
        learning_rate: At the end of the epoch.
        seconds: The epoch took, evaluation included.
    """

    epoch: int
    phase: Phase
    loss: float
    penalty: float
    train_accuracy: float
    test_accuracy: float
    params_kept: float
    flops_kept: float
    units_alive: dict[str, int]
    learning_rate: float
    seconds: float


def versions() -> dict[str, str]:
    """Return the versions that a result depends on."""
    return {"python": platform.python_version(), "torch": str(torch.__version__), "gossamer": version("gossamer")}


@dataclass(frozen=True)
class RunResult:
    """What ``result.json`` holds: the end of a run.

    Attributes:
        dataset: Name of the data set.
        regularizer: Name of the regularizer, or ``none``.
        strength: Its strength.
        seed: Of the run.
        epochs: That the run took.
        accuracy: On the test images.
        params_kept: Weights that are not exactly zero, as a fraction.
        flops_kept: Multiply-adds with weights that are not zero, as a fraction.
        seconds: Of training, over all epochs, interruptions left out.
        measurement: The final measurement, layer by layer, as parts of the full network.
        small: The network without its dead units: its weights (zero or not), multiply-adds and units, and the sizes in
            bytes of its file and of that of the network as it was trained.
        versions: Of Python, torch and this library.
    """

    dataset: str
    regularizer: str
    strength: float
    seed: int
    epochs: int
    accuracy: float
    params_kept: float
    flops_kept: float
    seconds: float
    measurement: dict[str, Any]
    small: dict[str, Any]
    versions: dict[str, str] = field(default_factory=versions)
