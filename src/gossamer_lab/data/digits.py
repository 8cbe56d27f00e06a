"""DIGITS: 1,797 handwritten digits of 8x8 pixels, distributed with scikit-learn."""

from __future__ import annotations

import torch

from gossamer_lab.data.augmentation import random_shift
from gossamer_lab.data.dataset import Dataset

__all__ = ["digits"]

_MAX_PIXEL = 16.0
_TEST_FRACTION = 0.2
_SPLIT_SEED = 0


def digits() -> Dataset:
    """Load DIGITS, pixels scaled to [0, 1]: 1,437 training and 360 test images.

    DIGITS has no published split. This one is fixed: scikit-learn's stratified split with 20 % test images and seed 0,
    independent of the training seed. Training images are shifted at random by up to one pixel.
    """
    # Imported here: scikit-learn takes a second to import, and the other data sets do not need it.
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]
    from sklearn.model_selection import train_test_split  # type: ignore[import-untyped]

    pixels, labels = load_digits(return_X_y=True)
    train_pixels, test_pixels, train_labels, test_labels = train_test_split(
        pixels, labels, test_size=_TEST_FRACTION, stratify=labels, random_state=_SPLIT_SEED
    )
    return Dataset(
        name="digits",
        train_images=torch.tensor(train_pixels / _MAX_PIXEL, dtype=torch.float32).reshape(-1, 1, 8, 8),
        train_labels=torch.tensor(train_labels, dtype=torch.int64),
        test_images=torch.tensor(test_pixels / _MAX_PIXEL, dtype=torch.float32).reshape(-1, 1, 8, 8),
        test_labels=torch.tensor(test_labels, dtype=torch.int64),
        classes=10,
        augment=random_shift,
    )
