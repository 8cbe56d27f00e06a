"""Random changes of training images that keep their class."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

__all__ = ["flip", "shift", "slant"]


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
    count = len(points)
    changes = (2 * torch.rand(count, 2, 2, device=points.device) - 1) * amount
    changes *= (torch.rand(count, device=points.device) < chance)[:, None, None]
    return points + (points - 0.5) @ changes.mT
