"""CIFAR-10: 60,000 colour photographs of 32x32 pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gossamer_lab.data.dataset import Dataset
from gossamer_lab.data.files import Content, read
from gossamer_lab.data.labels import as_labels
from gossamer_lab.data.sources import SOURCES
from gossamer_lab.data.variation import flip

__all__ = ["cifar_10"]

_LARGEST_PIXEL = 255.0
# Of the training pixels, red, green and blue, after the division by the largest.
_MEANS = (0.4914, 0.4822, 0.4465)
_DEVIATIONS = (0.2470, 0.2435, 0.2616)

# One byte for the class, then the red, the green and the blue pixels, row by row.
_PIXELS = 3 * 32 * 32
_RECORD = 1 + _PIXELS


def cifar_10(folder: Path | None = None) -> Dataset:
    """Load CIFAR-10 from its binary version, each colour standardised: 50,000 images to train on, 10,000 to test on.

    Half of the training images are mirrored, anew each time.
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
        vary=flip,
    )


def _photographs(contents: list[Content]) -> tuple[Tensor, Tensor]:
    batches = []
    for content in contents:
        if len(content.data) % _RECORD:
            raise content.refusal(f"holds {len(content.data):,} bytes, which is no multiple of {_RECORD:,}, one image")
        batches.append(np.frombuffer(content.data, dtype=np.uint8).reshape(-1, _RECORD))
    labels = [as_labels(batch[:, 0], content) for batch, content in zip(batches, contents, strict=True)]
    # Filled in place: as floating point numbers the images take more than half a gigabyte.
    images = torch.empty(sum(len(batch) for batch in batches), 3, 32, 32)
    np.concatenate([batch[:, 1:] for batch in batches], out=images.view(-1, _PIXELS).numpy())
    means, deviations = (torch.tensor(values).reshape(3, 1, 1) for values in (_MEANS, _DEVIATIONS))
    return images.div_(_LARGEST_PIXEL).sub_(means).div_(deviations), torch.cat(labels)
