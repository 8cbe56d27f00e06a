"""Construction of data set, network and regularizer from a configuration."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from gossamer.errors import GossamerError
from gossamer.proximal.approach import FEWEST_STEPS
from gossamer.regularizers import Regularizer
from gossamer_lab.data import Dataset, hold_out, load
from gossamer_lab.networks import build
from gossamer_lab.training.config import TrainingConfig
from gossamer_lab.training.regularizers import regularizer_spec

__all__ = ["assemble", "load_dataset"]

# One validation split for all runs, so that settings are compared on the same images.
_VALIDATION_SEED = 0


def load_dataset(config: TrainingConfig, folder: Path | None = None) -> Dataset:
    """Load the data set of a configuration; validation images, if any, replace the test images.

    Raises:
        GossamerError: If the configuration has a target, and its epochs on this data set are too few to reach one.
    """
    dataset = load(config.dataset, folder)
    if config.validation_fraction > 0:
        dataset = hold_out(dataset, config.validation_fraction, _VALIDATION_SEED)
    if config.images is not None:
        dataset = dataset.head(config.images)
    _require_steps(config, math.ceil(len(dataset.train_images) / config.batch_size))
    if not config.augment:
        dataset = replace(dataset, augment=None)
    return dataset.with_affine(config.affine)


def _require_steps(config: TrainingConfig, steps_per_epoch: int) -> None:
    steps = config.sparsify_epochs * steps_per_epoch
    if config.target is not None and steps < FEWEST_STEPS:
        enough = config.fewest_epochs(FEWEST_STEPS, steps_per_epoch)
        raise GossamerError(
            f"A target needs at least {FEWEST_STEPS} steps to be reached; {config.epochs} epochs of {steps_per_epoch} "
            f"steps on {config.dataset} give it {steps}. Train for at least {enough} epochs (`--epochs {enough}`)."
        )


def assemble(config: TrainingConfig, dataset: Dataset) -> tuple[nn.Module, Regularizer | None]:
    """Build the initialised network of a configuration and its regularizer."""
    model = build(config.network or config.dataset, torch.Generator().manual_seed(config.seed))
    return model, regularizer_spec(config.regularizer).build(model, config, dataset.example)
