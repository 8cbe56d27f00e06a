from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gossamer.errors import GossamerError
from gossamer_lab.data import Dataset, hold_out, random_affine


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


def test_affine_maps_come_before_the_other_augmentation() -> None:
    dataset = replace(small(), train_images=torch.rand(40, 1, 9, 9), augment=lambda images: images.flip(-1))
    chosen = torch.arange(10)
    torch.manual_seed(0)
    images, _ = dataset.with_affine(0.2).training_batch(chosen)
    torch.manual_seed(0)
    assert torch.equal(images, random_affine(dataset.train_images[chosen], 0.2).flip(-1))
    torch.manual_seed(0)
    unaugmented, _ = replace(dataset, augment=None).with_affine(0.2).training_batch(chosen)
    assert torch.equal(unaugmented, images.flip(-1))


def test_affine_maps_need_images() -> None:
    with pytest.raises(GossamerError, match=r"the inputs of data set 'small' are not images; received 0\.1"):
        replace(small(), is_image=False).with_affine(0.1)
    assert replace(small(), is_image=False).with_affine(0.0).augment is None
