"""SDD, Sensorless Drive Diagnosis: 58,509 measurements of the currents of an electric motor, in 11 conditions."""

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
_LARGEST_DEVIATION = 8.0


def sdd(folder: Path | None = None) -> Dataset:
    """Load SDD, features standardised: 46,807 measurements to train on and 11,702 to test on.

    A measurement is one channel of length 48, (1, 48), in the order of the file, so that a `torch.nn.Conv1d` with one
    input channel runs along the features. Neighbours belong together: 12 means are followed by 12 deviations, 12
    skewnesses and 12 kurtoses, and the 12 are components of the two currents, those of the same kind side by side.

    The data set comes without a split of its own. Ours never changes: scikit-learn's stratified split with 20 % for
    the test and seed 0, whatever the seed of the training. Mean and deviation of each feature are those of the
    training part. The scales differ by orders of magnitude and single values lie more than 50 deviations out, where
    they would rule every sum that they enter; so all are clipped to [-8, 8].
    """
    # Inside the function: the other data sets do without scikit-learn, which takes a second to import.
    from sklearn.model_selection import train_test_split  # type: ignore[import-untyped]

    source = SOURCES["sdd"]
    (content,) = read(source, folder).values()
    table = parse_table(content, features=48)
    labels = as_labels(table[:, -1], content, first=1)
    train, test, train_labels, test_labels = train_test_split(
        table[:, :-1], labels.numpy(), test_size=_TEST_FRACTION, stratify=labels, random_state=_SPLIT_SEED
    )
    mean, deviation = train.mean(axis=0), train.std(axis=0)
    train_images, test_images = (
        torch.tensor(
            np.clip((part - mean) / deviation, -_LARGEST_DEVIATION, _LARGEST_DEVIATION), dtype=torch.float32
        ).unsqueeze(1)
        for part in (train, test)
    )
    return Dataset(
        name=source.name,
        train_images=train_images,
        train_labels=torch.from_numpy(train_labels),
        test_images=test_images,
        test_labels=torch.from_numpy(test_labels),
        classes=source.classes,
        pictures=False,
    )
