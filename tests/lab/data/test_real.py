"""The real files, where GOSSAMER_DATA says that they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from gossamer_lab.data import SOURCES, Dataset, load

COUNTS = {
    "mnist": (
        [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
        [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009],
    ),
    "fashion-mnist": ([6000] * 10, [1000] * 10),
    "pendigits": (
        [780, 779, 780, 719, 780, 720, 720, 778, 719, 719],
        [363, 364, 364, 336, 364, 335, 336, 364, 336, 336],
    ),
    "sdd": (
        [4255, 4255, 4255, 4255, 4256, 4255, 4255, 4255, 4255, 4256, 4255],
        [1064] * 4 + [1063] + [1064] * 4 + [1063, 1064],
    ),
    "cifar-10": ([5000] * 10, [1000] * 10),
}


@pytest.fixture
def dataset(request: pytest.FixtureRequest, real: Callable[[str], Path]) -> Dataset:
    return load(request.param, real(request.param))


def test_the_table_of_sources_says_what_digits_is() -> None:
    agrees_with_its_source(load("digits"))


def agrees_with_its_source(dataset: Dataset) -> None:
    source = SOURCES[dataset.name]
    assert dataset.input_shape == source.input_shape
    sizes = (len(dataset.train_images), len(dataset.test_images), dataset.classes)
    assert sizes == (source.train, source.test, source.classes)


@pytest.mark.parametrize("dataset", list(COUNTS), indirect=True)
def test_real_files_hold_what_was_published(dataset: Dataset) -> None:
    agrees_with_its_source(dataset)
    assert (dataset.train_labels.bincount().tolist(), dataset.test_labels.bincount().tolist()) == COUNTS[dataset.name]
    images = dataset.train_images
    if dataset.name in ("mnist", "pendigits"):
        assert (images.min(), images.max()) == (0, 1)
        assert dataset.name != "mnist" or abs(images.mean() - 0.1307) < 1e-4
    elif dataset.name == "sdd":
        assert (images.min(), images.max()) == (-8, 8)
    else:
        for channel in images.transpose(0, 1):
            assert abs(channel.mean()) < 1e-3
            assert abs(channel.std() - 1) < 1e-3
    torch.manual_seed(0)
    augmented, labels = dataset.training_batch(torch.arange(16))
    assert augmented.shape == images[:16].shape
    assert torch.equal(labels, dataset.train_labels[:16])
    assert torch.equal(augmented, images[:16]) == (dataset.augment is None) == (dataset.name == "sdd")
