"""Conversion of the labels in a file to class indices."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from gossamer_lab.data.files import Content

__all__ = ["as_labels"]


def as_labels(values: ArrayLike, content: Content, first: int = 0) -> Tensor:
    """Return class indices from 0 as int64; `first` is the label of the first class in the file."""
    labels = np.asarray(values).astype(np.int64) - first
    last = content.source.classes - 1
    if labels.size and not (labels.min() >= 0 and labels.max() <= last):
        raise content.error(
            f"has labels from {labels.min() + first} to {labels.max() + first}; "
            f"{content.source.name} has labels from {first} to {last + first}"
        )
    return torch.from_numpy(labels)
