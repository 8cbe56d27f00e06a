"""Random changes of training images that keep their class."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample, pad

__all__ = ["flip", "shift", "slant", "slant_images"]


def shift(images: Tensor, pixels: int = 1, chance: float = 0.5, background: float = 0.0) -> Tensor:
    """Move some of the images by up to ``pixels`` along height and width; the background comes in at the edges.

    An image is left in place with probability ``1 - chance``; otherwise all moves are alike likely.
    """
    count, _, height, width = images.shape
    moves = torch.randint(0, 2 * pixels + 1, (2, count), device=images.device)
    stays = torch.rand(count, device=images.device) >= chance
    down, right = moves.masked_fill(stays, pixels)
    which = torch.arange(count, device=images.device)
    # All windows of the image's size in the image with its edges, as a view; one of them is copied for each image.
    windows = pad(images, (pixels,) * 4, value=background).unfold(2, height, 1).unfold(3, width, 1)
    return windows[which, :, down, right]


def flip(images: Tensor, chance: float = 0.5) -> Tensor:
    """Mirror some of the images, left to right, each with probability ``chance``."""
    mirrored = torch.rand(len(images), device=images.device) < chance
    return torch.where(mirrored[:, None, None, None], images.flip(-1), images)


def slant(points: Tensor, amount: float = 0.1, chance: float = 0.5) -> Tensor:
    """Turn, stretch and shear lines of points, as another hand would draw them: p -> c + (I + E)(p - c).

    ``points`` end in a dimension of pairs x, y; c is the centre of the unit square and the entries of E are uniform
    within ``amount``, drawn for each line. A line stays as it is with probability ``1 - chance``.
    """
    return points + (points - 0.5) @ _small_maps(len(points), amount, chance, points.device).mT


def slant_images(images: Tensor, amount: float = 0.1, chance: float = 1.0) -> Tensor:
    """Turn, stretch and shear images: the pixel at p becomes what was at c + (I + E)(p - c), by bilinear interpolation.

    c is the centre of the image, whose sides go from -1 to 1, and E as in :func:`slant`, drawn for each image; an image
    stays as it is with probability ``1 - chance``. What lies outside is taken to be as the nearest pixel of the edge.
    """
    maps = torch.eye(2, device=images.device) + _small_maps(len(images), amount, chance, images.device)
    maps = maps.to(images.dtype)
    maps = torch.cat([maps, maps.new_zeros(len(images), 2, 1)], dim=2)  # without a shift
    grid = affine_grid(maps, list(images.shape), align_corners=False)
    return grid_sample(images, grid, padding_mode="border", align_corners=False)


def _small_maps(count: int, amount: float, chance: float, device: torch.device) -> Tensor:
    """So many 2x2 matrices, entries uniform within ``amount``; a matrix is zero with probability 1 - ``chance``."""
    maps = (2 * torch.rand(count, 2, 2, device=device) - 1) * amount
    return maps * (torch.rand(count, device=device) < chance)[:, None, None]
