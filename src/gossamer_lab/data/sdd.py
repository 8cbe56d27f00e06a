"""SDD, Sensorless Drive Diagnosis: 58,509 measurements of the phase currents of a motor in 11 conditions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from gossamer_lab.data.dataset import Dataset
from gossamer_lab.data.files import read
from gossamer_lab.data.labels import as_labels
from gossamer_lab.data.sources import SOURCES
from gossamer_lab.data.table import parse_table

__all__ = ["sdd"]

_TEST_FRACTION = 0.2
_SPLIT_SEED = 0
_CLIP = 8.0


def sdd(folder: Path | None = None) -> Dataset:
    """Load SDD, features standardised: 46,807 training and 11,702 test samples.

    A sample has the shape (1, 48): one channel of a 1-d convolution, features in the order of the file. That order is
    meaningful: 12 means, 12 standard deviations, 12 skewnesses, 12 kurtoses, each over the same 12 components.

    SDD has no published split. This one is fixed: scikit-learn's stratified split with 20 % test samples and seed 0,
    independent of the training seed. Mean and standard deviation are those of the training part. Some values lie more
    than 50 standard deviations out, so all are clipped to [-8, 8].
    """
    # Imported here: scikit-learn takes a second to import, and the other data sets do not need it.
    from sklearn.model_selection import train_test_split  # type: ignore[import-untyped]

    source = SOURCES["sdd"]
    (content,) = read(source, folder).values()
    table = parse_table(content, features=48)
    labels = as_labels(table[:, -1], content, first=1)
    train, test, train_labels, test_labels = train_test_split(
        table[:, :-1], labels.numpy(), test_size=_TEST_FRACTION, stratify=labels, random_state=_SPLIT_SEED
    )
    mean, std = train.mean(axis=0), train.std(axis=0)
    train_images, test_images = (
        torch.tensor(np.clip((part - mean) / std, -_CLIP, _CLIP), dtype=torch.float32).unsqueeze(1)
        for part in (train, test)
    )
    return Dataset(
        name=source.name,
        train_images=train_images,
        train_labels=torch.from_numpy(train_labels),
        test_images=test_images,
        test_labels=torch.from_numpy(test_labels),
        classes=source.classes,
        is_image=False,
    )
