"""CIFAR-10: 60,000 colour photographs of 32x32 pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gossamer_lab.data.augmentation import random_flip
from gossamer_lab.data.dataset import Dataset
from gossamer_lab.data.files import Content, read
from gossamer_lab.data.labels import as_labels
from gossamer_lab.data.sources import SOURCES

__all__ = ["cifar_10"]

_MAX_PIXEL = 255.0
# Statistics of the training pixels per colour channel, after scaling to [0, 1].
_MEANS = (0.4914, 0.4822, 0.4465)
_STDS = (0.2470, 0.2435, 0.2616)

# A record is one byte for the class, then the red, green and blue pixels, row by row.
_PIXELS = 3 * 32 * 32
_RECORD = 1 + _PIXELS


def cifar_10(folder: Path | None = None) -> Dataset:
    """Load the binary version of CIFAR-10, standardised per channel: 50,000 training and 10,000 test images.

    Training images are flipped horizontally at random.
    """
    source = SOURCES["cifar-10"]
    parts = read(source, folder)
    test = parts.pop("test_batch.bin")
    train_images, train_labels = _photographs([parts[part.name] for part in source.parts if part.name in parts])
    test_images, test_labels = _photographs([test])
    return Dataset(
        name=source.name,
        train_images=train_images,
        train_labels=train_labels,
        test_images=test_images,
        test_labels=test_labels,
        classes=source.classes,
        augment=random_flip,
    )


def _photographs(contents: list[Content]) -> tuple[Tensor, Tensor]:
    batches = []
    for content in contents:
        if len(content.data) % _RECORD:
            raise content.error(
                f"holds {len(content.data):,} bytes, which is not a multiple of {_RECORD:,}, the size of a record"
            )
        batches.append(np.frombuffer(content.data, dtype=np.uint8).reshape(-1, _RECORD))
    labels = [as_labels(batch[:, 0], content) for batch, content in zip(batches, contents, strict=True)]
    # Filled in place: the images take more than half a gigabyte as float32.
    images = torch.empty(sum(len(batch) for batch in batches), 3, 32, 32)
    np.concatenate([batch[:, 1:] for batch in batches], out=images.view(-1, _PIXELS).numpy())
    means, stds = (torch.tensor(values).reshape(3, 1, 1) for values in (_MEANS, _STDS))
    return images.div_(_MAX_PIXEL).sub_(means).div_(stds), torch.cat(labels)
