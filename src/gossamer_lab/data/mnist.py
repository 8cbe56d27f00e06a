"""MNIST and Fashion-MNIST: 70,000 grey images each, of 28x28 pixels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer_lab.data.dataset import Dataset
from gossamer_lab.data.files import Content, read
from gossamer_lab.data.idx import parse_idx
from gossamer_lab.data.labels import as_labels
from gossamer_lab.data.sources import SOURCES
from gossamer_lab.data.variation import flip, shift

__all__ = ["fashion_mnist", "mnist"]

_LARGEST_PIXEL = 255.0
# Of the training pixels, after the division by the largest.
_FASHION_MEAN = 0.2860
_FASHION_DEVIATION = 0.3530


def mnist(folder: Path | None = None) -> Dataset:
    """Load MNIST, pixels scaled to [0, 1]: 60,000 handwritten digits to train on and 10,000 to test on.

    Half of the training images are shifted by up to one pixel, anew each time.
    """
    return _load("mnist", folder, 0.0, 1.0, shift)


def fashion_mnist(folder: Path | None = None) -> Dataset:
    """Load Fashion-MNIST, pixels standardised: 60,000 pieces of clothing to train on and 10,000 to test on.

    Half of the training images are mirrored and half are shifted by up to one pixel, anew each time.
    """
    return _load("fashion-mnist", folder, _FASHION_MEAN, _FASHION_DEVIATION, _vary)


def _vary(images: Tensor) -> Tensor:
    return shift(flip(images), background=-_FASHION_MEAN / _FASHION_DEVIATION)


def _load(name: str, folder: Path | None, mean: float, deviation: float, vary: Callable[[Tensor], Tensor]) -> Dataset:
    source = SOURCES[name]
    parts = read(source, folder)

    def images(part: str) -> Tensor:
        pixels = _array(parts[part], source.input_shape[1:]).astype(np.float32)
        return torch.from_numpy(pixels).unsqueeze(1).div_(_LARGEST_PIXEL).sub_(mean).div_(deviation)

    def labels(part: str) -> Tensor:
        return as_labels(_array(parts[part], ()), parts[part])

    return Dataset(
        name=name,
        train_images=images("train-images-idx3-ubyte"),
        train_labels=labels("train-labels-idx1-ubyte"),
        test_images=images("t10k-images-idx3-ubyte"),
        test_labels=labels("t10k-labels-idx1-ubyte"),
        classes=source.classes,
        vary=vary,
    )


def _array(content: Content, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """The numbers of a file: one of this shape for each image."""
    try:
        array = parse_idx(content.data)
    except ValueError as error:
        raise content.refusal(f"is not an IDX file: {error}") from error
    if array.ndim == 0 or array.shape[1:] != shape:
        raise content.refusal(f"holds an array of {array.shape}, where each image takes {shape}")
    return array
