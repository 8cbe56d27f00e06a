"""Random changes of training images that keep their class."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

__all__ = ["shift"]


def shift(images: Tensor, pixels: int = 1, chance: float = 0.5) -> Tensor:
    """Move some of the images by up to ``pixels`` along height and width; zeros come in at the edges.

    An image is left in place with probability ``1 - chance``; otherwise all moves are alike likely.
    """
    count, _, height, width = images.shape
    padded = pad(images, (pixels,) * 4)
    moves = torch.randint(0, 2 * pixels + 1, (2, count), device=images.device)
    stays = torch.rand(count, device=images.device) >= chance
    down, right = moves.masked_fill(stays, pixels)
    rows = down[:, None] + torch.arange(height, device=images.device)
    columns = right[:, None] + torch.arange(width, device=images.device)
    which = torch.arange(count, device=images.device)
    return padded[which[:, None, None], :, rows[:, :, None], columns[:, None, :]].movedim(-1, 1)
