"""PENDIGITS: 10,992 digits written with a pen on a tablet, each as eight points along the line."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from gossamer_lab.data.dataset import Dataset
from gossamer_lab.data.files import Content, read
from gossamer_lab.data.labels import as_labels
from gossamer_lab.data.sources import SOURCES
from gossamer_lab.data.table import parse_table
from gossamer_lab.data.variation import slant

__all__ = ["pendigits"]

_LARGEST_COORDINATE = 100.0


def pendigits(folder: Path | None = None) -> Dataset:
    """Load PENDIGITS, coordinates scaled to [0, 1]: 7,494 digits to train on and 3,498 of other writers to test on.

    The 16 coordinates x1, y1, ..., x8, y8 are laid out as an image of 4x4, row by row: a row is two points that follow
    each other. Half of the training digits are turned, stretched and sheared a little, anew each time: the test digits
    are of other hands.
    """
    source = SOURCES["pendigits"]
    parts = read(source, folder)
    train_images, train_labels = _points(parts["pendigits.tra"])
    test_images, test_labels = _points(parts["pendigits.tes"])
    return Dataset(
        source.name, train_images, train_labels, test_images, test_labels, source.classes, _vary, pictures=False
    )


def _vary(images: Tensor) -> Tensor:
    return slant(images.reshape(-1, 8, 2)).reshape(images.shape)


def _points(content: Content) -> tuple[Tensor, Tensor]:
    table = parse_table(content, features=16, delimiter=",")
    images = torch.tensor(table[:, :-1] / _LARGEST_COORDINATE, dtype=torch.float32)
    return images.reshape(-1, *content.source.input_shape), as_labels(table[:, -1], content)
