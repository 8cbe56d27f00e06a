"""A data set in memory, and how a part of its training images is set aside for choosing settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from gossamer.errors import GossamerError
from gossamer_lab.data.variation import slant_images

__all__ = ["Dataset", "hold_out"]


@dataclass(frozen=True)
class Dataset:
    """Images and labels for training and for the final test, as tensors.

    Attributes:
        name: What the command calls it.
        train_images: One image a row, floating point, as the network takes them.
        train_labels: The class of each training image, from 0 to ``classes - 1``.
        test_images: Images that training never sees.
        test_labels: Their classes.
        classes: How many classes there are.
        vary: Changes training images at random in a way that keeps their class, each time they are trained on.
        pictures: Whether an image is a picture, and stays one when it is turned a little.
    """

    name: str
    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    classes: int
    vary: Callable[[Tensor], Tensor] | None = None
    pictures: bool = True

    def __post_init__(self) -> None:
        for part in ("train", "test"):
            images, labels = getattr(self, f"{part}_images"), getattr(self, f"{part}_labels")
            if len(images) != len(labels) or len(images) == 0:
                raise GossamerError(
                    f"Data set {self.name!r} has {len(images)} {part} images and {len(labels)} {part} labels. "
                    "There must be as many of one as of the other, and at least one."
                )

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one image."""
        return tuple(self.train_images.shape[1:])

    @property
    def example(self) -> Tensor:
        """One training image as a batch, for what needs to see the network run."""
        return self.train_images[:1]

    def first(self, count: int) -> Dataset:
        """Return the data set with its first ``count`` images of each part only, for a quick look."""
        return replace(
            self,
            train_images=self.train_images[:count],
            train_labels=self.train_labels[:count],
            test_images=self.test_images[:count],
            test_labels=self.test_labels[:count],
        )

    def slanted(self, amount: float) -> Dataset:
        """Return the data set with training images that are turned, stretched and sheared, too, before they are varied.

        By the amount 0 nothing changes.

        Raises:
            GossamerError: When its images are no pictures.
        """
        if amount == 0:
            return self
        if not self.pictures:
            raise GossamerError(
                f"`slant` turns and shears pictures, and those of data set {self.name!r} are not; received {amount!r}. "
                "Leave it out."
            )
        return replace(self, vary=partial(_slant_and_vary, amount, self.vary))

    def training_batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return these training images, varied, and their labels."""
        images = self.train_images[indices]
        return (images if self.vary is None else self.vary(images)), self.train_labels[indices]


def _slant_and_vary(amount: float, vary: Callable[[Tensor], Tensor] | None, images: Tensor) -> Tensor:
    slanted = slant_images(images, amount)
    return slanted if vary is None else vary(slanted)


def hold_out(dataset: Dataset, fraction: float, seed: int) -> Dataset:
    """Return the training part only, split anew: settings are chosen on this, so the test images stay unseen.

    Each class gives the same fraction of its images, drawn by ``seed``, and they take the place of the test images.
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
