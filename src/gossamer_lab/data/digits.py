"""DIGITS: 1,797 handwritten digits of 8x8 pixels, distributed with scikit-learn."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from gossamer.errors import GossamerError
from gossamer_lab.data.augmentation import random_shift
from gossamer_lab.data.dataset import Dataset

__all__ = ["digits"]

_MAX_PIXEL = 16.0
_TEST_IMAGES = 360
_ORDER = Path(__file__).with_name("digits_split.npy")
"""The training images, then the test images, in the order of scikit-learn's `train_test_split`."""


def digits() -> Dataset:
    """Load DIGITS, pixels scaled to [0, 1]: 1,437 training and 360 test images.

    DIGITS has no published split. This one is fixed: scikit-learn's stratified split with 20 % test images and seed 0,
    independent of the training seed. Training images are shifted at random by up to one pixel.
    """
    table = np.loadtxt(_file(), delimiter=",")[np.load(_ORDER)]
    images = torch.tensor(table[:, :-1] / _MAX_PIXEL, dtype=torch.float32).reshape(-1, 1, 8, 8)
    labels = torch.tensor(table[:, -1], dtype=torch.int64)
    return Dataset(
        name="digits",
        train_images=images[:-_TEST_IMAGES].clone(),
        train_labels=labels[:-_TEST_IMAGES].clone(),
        test_images=images[-_TEST_IMAGES:].clone(),
        test_labels=labels[-_TEST_IMAGES:].clone(),
        classes=10,
        augment=random_shift,
    )


def _file() -> Path:
    """The file of scikit-learn, found without an import, which takes a second in each process."""
    package = find_spec("sklearn")
    for folder in (package and package.submodule_search_locations) or ():
        file = Path(folder, "datasets", "data", "digits.csv.gz")
        if file.is_file():
            return file
    raise GossamerError(
        "DIGITS is not found: its file comes with scikit-learn. Install it: pip install 'gossamer[lab]'."
    )
