"""An in-memory data set, and its split into training and validation images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from gossamer.errors import GossamerError
from gossamer_lab.data.augmentation import random_affine

__all__ = ["Dataset", "hold_out"]


@dataclass(frozen=True)
class Dataset:
    """Training and test images with their labels.

    Attributes:
        name: Name on the command line.
        train_images: Floating-point inputs of the network, one per row.
        train_labels: Classes of the training images, from 0 to `classes - 1`.
        test_images: Images that are never trained on.
        test_labels: Their classes.
        classes: Number of classes.
        augment: Random augmentation of a batch of training images; None for no augmentation.
        is_image: Whether an input is an image, so that an affine map of it keeps its class.
    """

    name: str
    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    classes: int
    augment: Callable[[Tensor], Tensor] | None = None
    is_image: bool = True

    def __post_init__(self) -> None:
        for part in ("train", "test"):
            images, labels = getattr(self, f"{part}_images"), getattr(self, f"{part}_labels")
            if len(images) != len(labels) or len(images) == 0:
                raise GossamerError(
                    f"Data set {self.name!r} has {len(images)} {part} images and {len(labels)} {part} labels. "
                    "It needs one label per image, and at least one image."
                )

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one image."""
        return tuple(self.train_images.shape[1:])

    @property
    def example(self) -> Tensor:
        """A batch of one training image."""
        return self.train_images[:1]

    def head(self, count: int) -> Dataset:
        """Return the data set restricted to its first `count` training and `count` test images."""
        return replace(
            self,
            train_images=self.train_images[:count],
            train_labels=self.train_labels[:count],
            test_images=self.test_images[:count],
            test_labels=self.test_labels[:count],
        )

    def with_affine(self, amount: float) -> Dataset:
        """Return the data set with random affine maps applied before its other augmentation.

        Raises:
            GossamerError: If `amount` is not 0 and the inputs are not images.
        """
        if amount == 0:
            return self
        if not self.is_image:
            raise GossamerError(
                f"`affine` transforms images, and the inputs of data set {self.name!r} are not images; "
                f"received {amount!r}. Leave `affine` out."
            )
        return replace(self, augment=partial(_affine_then, amount, self.augment))

    def training_batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return the augmented training images at `indices` and their labels."""
        images = self.train_images[indices]
        return (images if self.augment is None else self.augment(images)), self.train_labels[indices]


def _affine_then(amount: float, augment: Callable[[Tensor], Tensor] | None, images: Tensor) -> Tensor:
    transformed = random_affine(images, amount)
    return transformed if augment is None else augment(transformed)


def hold_out(dataset: Dataset, fraction: float, seed: int) -> Dataset:
    """Split the training images into training and validation images; the latter replace the test images.

    The split is stratified: each class gives the same fraction of its images.

    Args:
        dataset: The data set to split.
        fraction: Fraction of the training images used for validation.
        seed: Seed of the split.
    """
    if not 0 < fraction < 1:
        raise GossamerError(f"`hold_out(fraction=...)` must be above 0 and below 1; received {fraction!r}.")
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.zeros(len(dataset.train_labels), dtype=torch.bool)
    for label in range(dataset.classes):
        members = (dataset.train_labels == label).nonzero().squeeze(1)
        order = torch.randperm(len(members), generator=generator)
        chosen[members[order[: round(fraction * len(members))]]] = True
    return replace(
        dataset,
        train_images=dataset.train_images[~chosen],
        train_labels=dataset.train_labels[~chosen],
        test_images=dataset.train_images[chosen],
        test_labels=dataset.train_labels[chosen],
    )
