from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gossamer.errors import GossamerError
from gossamer_lab.data import Dataset, hold_out, slant_images


def small(train: int = 40, labels: int | None = None, test: int = 4) -> Dataset:
    return Dataset(
        name="small",
        train_images=torch.arange(float(train)).reshape(-1, 1, 1, 1).expand(-1, 1, 2, 3),
        train_labels=torch.arange(train if labels is None else labels) % 4,
        test_images=torch.zeros(test, 1, 2, 3),
        test_labels=torch.arange(test) % 4,
        classes=4,
    )


def test_shape_and_example_are_those_of_one_image() -> None:
    dataset = small()
    assert dataset.input_shape == (1, 2, 3)
    assert dataset.example.shape == (1, 1, 2, 3)


@pytest.mark.parametrize("sizes", [{"labels": 39}, {"train": 0}, {"test": 0}])
def test_images_without_labels_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(GossamerError, match="'small' has"):
        small(**sizes)


def test_hold_out_splits_the_training_images_and_never_looks_at_the_test_images() -> None:
    dataset = small()
    split = hold_out(dataset, 0.2, seed=1)
    assert split.test_labels.bincount().tolist() == [2, 2, 2, 2]
    kept, held = (set(images[:, 0, 0, 0].tolist()) for images in (split.train_images, split.test_images))
    assert not kept & held
    assert kept | held == set(range(40))
    assert (split.train_images[:, 0, 0, 0] % 4 == split.train_labels).all()


def test_hold_out_depends_on_its_seed_alone() -> None:
    first, again, other = (hold_out(small(), 0.5, seed=seed).test_images for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, float("nan")])
def test_a_fraction_that_leaves_one_part_empty_is_refused(fraction: float) -> None:
    with pytest.raises(GossamerError, match="fraction"):
        hold_out(small(), fraction, seed=0)


def test_slanted_images_are_slanted_first_and_then_varied() -> None:
    dataset = replace(small(), train_images=torch.rand(40, 1, 9, 9), vary=lambda images: images.flip(-1))
    chosen = torch.arange(10)
    torch.manual_seed(0)
    images, _ = dataset.slanted(0.2).training_batch(chosen)
    torch.manual_seed(0)
    assert torch.equal(images, slant_images(dataset.train_images[chosen], 0.2).flip(-1))
    torch.manual_seed(0)
    unvaried, _ = replace(dataset, vary=None).slanted(0.2).training_batch(chosen)
    assert torch.equal(unvaried, images.flip(-1))


def test_what_is_no_picture_cannot_be_slanted() -> None:
    with pytest.raises(GossamerError, match=r"pictures, and those of data set 'small' are not; received 0\.1"):
        replace(small(), pictures=False).slanted(0.1)
    assert replace(small(), pictures=False).slanted(0.0).vary is None
