"""From a configuration, which is data, to what is trained: images, network, regularizer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from gossamer.regularizers import Regularizer
from gossamer_lab.data import Dataset, hold_out, load
from gossamer_lab.networks import build
from gossamer_lab.training.config import TrainingConfig
from gossamer_lab.training.methods import method

__all__ = ["assemble", "images_of"]

# One split for all trainings: settings that are compared on it must see the same images.
_VALIDATION_SEED = 0


def images_of(config: TrainingConfig, folder: Path | None = None) -> Dataset:
    """Load the data set of a configuration; with a validation part, that part is in the place of the test images."""
    dataset = load(config.dataset, folder)
    if config.validation_fraction > 0:
        dataset = hold_out(dataset, config.validation_fraction, _VALIDATION_SEED)
    if config.images is not None:
        dataset = dataset.first(config.images)
    if not config.vary:
        dataset = replace(dataset, vary=None)
    return dataset.slanted(config.slant)


def assemble(config: TrainingConfig, dataset: Dataset) -> tuple[nn.Module, Regularizer | None]:
    """Build the network of a configuration with its first weights, and the regularizer for it."""
    model = build(config.network or config.dataset, torch.Generator().manual_seed(config.seed))
    return model, method(config.regularizer).build(model, config, dataset.example)
