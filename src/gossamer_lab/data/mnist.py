"""MNIST and Fashion-MNIST: 70,000 greyscale images of 28x28 pixels each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer_lab.data.augmentation import random_flip, random_shift
from gossamer_lab.data.dataset import Dataset
from gossamer_lab.data.files import Content, read
from gossamer_lab.data.idx import parse_idx
from gossamer_lab.data.labels import as_labels
from gossamer_lab.data.sources import SOURCES

__all__ = ["fashion_mnist", "mnist"]

_MAX_PIXEL = 255.0
# Statistics of the training pixels, after scaling to [0, 1].
_FASHION_MEAN = 0.2860
_FASHION_STD = 0.3530


def mnist(folder: Path | None = None) -> Dataset:
    """Load MNIST, pixels scaled to [0, 1]: 60,000 training and 10,000 test images of handwritten digits.

    Training images are shifted at random by up to one pixel.
    """
    return _load("mnist", folder, 0.0, 1.0, random_shift)


def fashion_mnist(folder: Path | None = None) -> Dataset:
    """Load Fashion-MNIST, pixels standardised: 60,000 training and 10,000 test images of clothing.

    Training images are flipped horizontally and shifted by up to one pixel at random.
    """
    return _load("fashion-mnist", folder, _FASHION_MEAN, _FASHION_STD, _flip_and_shift)


def _flip_and_shift(images: Tensor) -> Tensor:
    return random_shift(random_flip(images), fill=-_FASHION_MEAN / _FASHION_STD)


def _load(name: str, folder: Path | None, mean: float, std: float, augment: Callable[[Tensor], Tensor]) -> Dataset:
    source = SOURCES[name]
    parts = read(source, folder)

    def images(part: str) -> Tensor:
        pixels = _array(parts[part], source.input_shape[1:]).astype(np.float32)
        return torch.from_numpy(pixels).unsqueeze(1).div_(_MAX_PIXEL).sub_(mean).div_(std)

    def labels(part: str) -> Tensor:
        return as_labels(_array(parts[part], ()), parts[part])

    return Dataset(
        name=name,
        train_images=images("train-images-idx3-ubyte"),
        train_labels=labels("train-labels-idx1-ubyte"),
        test_images=images("t10k-images-idx3-ubyte"),
        test_labels=labels("t10k-labels-idx1-ubyte"),
        classes=source.classes,
        augment=augment,
    )


def _array(content: Content, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Parse an IDX file whose items have this shape."""
    try:
        array = parse_idx(content.data)
    except ValueError as error:
        raise content.error(f"is not an IDX file: {error}") from error
    if array.ndim == 0 or array.shape[1:] != shape:
        raise content.error(f"holds an array of shape {array.shape}; items of shape {shape} are expected")
    return array
