"""Records of a run: one per epoch, and the final result."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from gossamer_lab.training.progress import Phase

__all__ = ["EpochMetrics", "RunResult", "versions"]


@dataclass(frozen=True)
class EpochMetrics:
    """One line of `metrics.jsonl`. Accuracies and kept parts are fractions from 0 to 1.

    Attributes:
        epoch: Number of the epoch, from 1.
        phase: Phase of the epoch.
        loss: Mean training loss over the epoch, each image evaluated in its training step.
        penalty: Value of the penalty at the end of the epoch, at full strength; 0 without a regularizer.
        train_accuracy: Accuracy of the predictions that `loss` is computed from.
        test_accuracy: Accuracy on the test images at the end of the epoch. Nothing is selected by it.
        params_kept: Fraction of the weights that are not exactly zero.
        flops_kept: Fraction of the MACs, those with a non-zero weight.
        units_alive: Number of live units of each weight layer.
        learning_rate: Learning rate at the end of the epoch.
        seconds: Wall-clock time of the epoch, including evaluation.
        strength: Strength at the end of the epoch; 0 when the zeros are held.
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
    strength: float | None = None


def versions() -> dict[str, str]:
    """Return the versions of Python, torch and this package."""
    import torch

    return {"python": platform.python_version(), "torch": str(torch.__version__), "gossamer": version("gossamer")}


@dataclass(frozen=True)
class RunResult:
    """The content of `result.json`.

    Attributes:
        dataset: Name of the data set.
        regularizer: Name of the regularizer, or `none`.
        strength: Strength of the regularizer; with a target, the last one.
        seed: Seed of the run.
        epochs: Number of epochs trained.
        accuracy: Accuracy on the test images.
        params_kept: Fraction of the weights that are not exactly zero.
        flops_kept: Fraction of the MACs, those with a non-zero weight.
        seconds: Wall-clock time of all epochs, without interruptions.
        measurement: Final measurement per layer, relative to the full network.
        small: The network without its dead units: the fields of `ShrunkNetwork`.
        target: With a target, the fields of `gossamer.Reached`.
        versions: Versions of Python, torch and this package.
        fingerprint: That of the configuration and the metrics of the run; None in runs of earlier versions.
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
    target: dict[str, Any] | None = None
    versions: dict[str, str] = field(default_factory=versions)
    fingerprint: str | None = None
