"""Weights as pictures: where the non-zeros of a layer are, and the filters of the first layer."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gossamer.layers import Weight
from gossamer.visualization.data import Filter, Filters, Pattern

__all__ = ["MOST_CELLS", "MOST_FILTERS", "filters_of", "pattern_of"]

MOST_CELLS = 256
"""The largest height and width of a pattern; a larger weight is averaged over blocks."""

MOST_FILTERS = 144
"""How many filters of the first layer are shown."""

_LEVELS = 15
_MOST_CHANNELS = 4  # beside each other in one filter
_NEGATIVE, _POSITIVE = (33, 118, 199), (214, 110, 18)  # blue and orange differ for every kind of colour vision


def pattern_of(weight: Weight) -> Pattern:
    """The non-zeros of a weight, seen as a matrix with a row for each output unit."""
    present = weight.layout.as_groups(weight.parameter.detach() != 0, "outputs").cpu().numpy()
    density = _block_means(present)
    levels = np.where(density > 0, np.maximum(1, np.floor(_LEVELS * density)), 0).astype(np.uint8)
    rows, columns = present.shape
    height, width = levels.shape
    return Pattern(rows, columns, height, width, levels.tobytes())


def filters_of(weight: Weight, example: Tensor | None) -> Filters | None:
    """The filters of a 2d convolution, or of a linear layer that reads the pixels of `example`; None for others."""
    matrix = weight.layout.as_groups(weight.parameter.detach().cpu().double(), "outputs")
    shape = _image_shape(weight, example)
    if shape is None or matrix.numel() == 0:
        return None
    shown = matrix[:MOST_FILTERS].reshape(-1, *shape)
    colour = shape[0] == 3
    pixels = _coloured(shown) if colour else _signed(shown)
    found = tuple(
        Filter(unit, int((ingoing != 0).sum()), image.tobytes())
        for unit, (ingoing, image) in enumerate(zip(shown, pixels, strict=True))
    )
    height, width = pixels.shape[1:3]
    return Filters(weight.name, len(matrix), matrix.shape[1], height, width, colour, found)


def _block_means(present: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """The density of blocks of equal size, give or take a row or column; every weight is in exactly one block."""
    if present.size == 0:
        return np.zeros((0, 0))
    edges = [np.linspace(0, size, min(size, MOST_CELLS) + 1).astype(np.int64) for size in present.shape]
    by_rows = np.add.reduceat(present, edges[0][:-1], axis=0, dtype=np.int64)
    sums = np.add.reduceat(by_rows, edges[1][:-1], axis=1)
    means: npt.NDArray[np.float64] = sums / np.outer(np.diff(edges[0]), np.diff(edges[1]))
    return means


def _image_shape(weight: Weight, example: Tensor | None) -> tuple[int, int, int] | None:
    """Channels, height and width of a filter."""
    shape = tuple(weight.parameter.shape)
    if len(shape) == 4 and weight.layout.axes[1] == "out":  # a 2d convolution that is not transposed
        return shape[1:] if shape[1] <= _MOST_CHANNELS else None
    if len(shape) != 2 or example is None or example.dim() < 3:
        return None
    channels, height, width = (1, *example.shape[-2:]) if example.dim() == 3 else tuple(example.shape[-3:])
    fits = channels in (1, 3) and math.prod((channels, height, width)) == shape[1]
    return (channels, height, width) if fits else None


def _signed(shown: Tensor) -> npt.NDArray[np.uint8]:
    """Blue below zero, orange above, transparent at zero; the channels of a filter side by side."""
    flat = shown.permute(0, 2, 1, 3).flatten(2).nan_to_num(0.0, 0.0, 0.0).numpy()
    pixels = np.zeros((*flat.shape, 4), dtype=np.uint8)
    pixels[..., :3] = np.where(flat[..., None] < 0, _NEGATIVE, _POSITIVE)
    # The square root, and a least opacity: a weight that is not zero stays visible, however small it is.
    opacity = 255 * np.sqrt(np.abs(flat) / max(float(np.abs(flat).max()), 1e-300))
    pixels[..., 3] = np.where(flat != 0, np.maximum(32, np.round(opacity)), 0)
    return pixels


def _coloured(shown: Tensor) -> npt.NDArray[np.uint8]:
    """Red, green and blue from the three channels, grey at zero; a filter without a non-zero weight is transparent."""
    values = shown.permute(0, 2, 3, 1).nan_to_num(0.0, 0.0, 0.0)
    scaled = 0.5 + 0.5 * values / values.abs().max().clamp(min=1e-300)
    alive = (shown != 0).flatten(1).any(1).view(-1, 1, 1, 1).expand(*scaled.shape[:3], 1)
    pixels: npt.NDArray[np.uint8] = torch.cat([255 * scaled, 255 * alive], dim=3).round().to(torch.uint8).numpy()
    return pixels
