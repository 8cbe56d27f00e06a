"""Construction of data set, network and regularizer from a configuration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from gossamer.regularizers import Regularizer
from gossamer_lab.data import Dataset, hold_out, load
from gossamer_lab.networks import build
from gossamer_lab.training.config import TrainingConfig
from gossamer_lab.training.regularizers import regularizer_spec

__all__ = ["assemble", "load_dataset"]

# One validation split for all runs, so that settings are compared on the same images.
_VALIDATION_SEED = 0


def load_dataset(config: TrainingConfig, folder: Path | None = None) -> Dataset:
    """Load the data set of a configuration; validation images, if any, replace the test images."""
    dataset = load(config.dataset, folder)
    if config.validation_fraction > 0:
        dataset = hold_out(dataset, config.validation_fraction, _VALIDATION_SEED)
    if config.images is not None:
        dataset = dataset.head(config.images)
    if not config.augment:
        dataset = replace(dataset, augment=None)
    return dataset.with_affine(config.affine)


def assemble(config: TrainingConfig, dataset: Dataset) -> tuple[nn.Module, Regularizer | None]:
    """Build the initialised network of a configuration and its regularizer."""
    model = build(config.network or config.dataset, torch.Generator().manual_seed(config.seed))
    return model, regularizer_spec(config.regularizer).build(model, config, dataset.example)
