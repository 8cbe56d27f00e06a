"""DIGITS: 1,797 handwritten digits of 8x8 pixels, which scikit-learn carries along."""

from __future__ import annotations

import torch

from gossamer_lab.data.dataset import Dataset
from gossamer_lab.data.variation import shift

__all__ = ["digits"]

_LARGEST_PIXEL = 16.0
_TEST_FRACTION = 0.2
_SPLIT_SEED = 0


def digits() -> Dataset:
    """Load DIGITS, pixels scaled to [0, 1]: 1,437 images to train on and 360 to test on.

    The data set comes without a split of its own. Ours never changes: scikit-learn's stratified split with 20 % for
    the test and seed 0, whatever the seed of the training. Half of the training images are shifted by up to
    one pixel, anew each time.
    """
    # Inside the function: the other data sets do without scikit-learn, which takes a second to import.
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]
    from sklearn.model_selection import train_test_split  # type: ignore[import-untyped]

    pixels, labels = load_digits(return_X_y=True)
    train_pixels, test_pixels, train_labels, test_labels = train_test_split(
        pixels, labels, test_size=_TEST_FRACTION, stratify=labels, random_state=_SPLIT_SEED
    )
    return Dataset(
        name="digits",
        train_images=torch.tensor(train_pixels / _LARGEST_PIXEL, dtype=torch.float32).reshape(-1, 1, 8, 8),
        train_labels=torch.tensor(train_labels, dtype=torch.int64),
        test_images=torch.tensor(test_pixels / _LARGEST_PIXEL, dtype=torch.float32).reshape(-1, 1, 8, 8),
        test_labels=torch.tensor(test_labels, dtype=torch.int64),
        classes=10,
        vary=shift,
    )
