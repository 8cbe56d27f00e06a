"""PENDIGITS: 10,992 digits written with a pen on a tablet, each resampled to eight points."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from gossamer_lab.data.augmentation import random_affine_points
from gossamer_lab.data.dataset import Dataset
from gossamer_lab.data.files import Content, read
from gossamer_lab.data.labels import as_labels
from gossamer_lab.data.sources import SOURCES
from gossamer_lab.data.table import parse_table

__all__ = ["pendigits"]

_MAX_COORDINATE = 100.0


def pendigits(folder: Path | None = None) -> Dataset:
    """Load PENDIGITS, coordinates scaled to [0, 1]: 7,494 training digits and 3,498 test digits of other writers.

    The coordinates x1, y1, ..., x8, y8 are arranged as a 4x4 image in row-major order. Training digits are mapped by
    random affine maps.
    """
    source = SOURCES["pendigits"]
    parts = read(source, folder)
    train_images, train_labels = _points(parts["pendigits.tra"])
    test_images, test_labels = _points(parts["pendigits.tes"])
    return Dataset(
        name=source.name,
        train_images=train_images,
        train_labels=train_labels,
        test_images=test_images,
        test_labels=test_labels,
        classes=source.classes,
        augment=_affine,
        is_image=False,
    )


def _affine(images: Tensor) -> Tensor:
    return random_affine_points(images.reshape(-1, 8, 2)).reshape(images.shape)


def _points(content: Content) -> tuple[Tensor, Tensor]:
    table = parse_table(content, features=16, delimiter=",")
    images = torch.tensor(table[:, :-1] / _MAX_COORDINATE, dtype=torch.float32)
    return images.reshape(-1, *content.source.input_shape), as_labels(table[:, -1], content)
