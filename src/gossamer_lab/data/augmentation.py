"""Random augmentations of training images, drawn from torch's default generator."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample, pad

__all__ = ["random_affine", "random_affine_points", "random_flip", "random_shift"]


def random_shift(images: Tensor, pixels: int = 1, p: float = 0.5, fill: float = 0.0) -> Tensor:
    """Translate each image with probability `p` by up to `pixels` along height and width.

    All translations are equally likely, the identity included. Pixels that enter at the border have the value `fill`.
    """
    count, _, height, width = images.shape
    offsets = torch.randint(0, 2 * pixels + 1, (2, count), device=images.device)
    unchanged = torch.rand(count, device=images.device) >= p
    down, right = offsets.masked_fill(unchanged, pixels)
    index = torch.arange(count, device=images.device)
    # A view of all windows of the padded images; one window is copied per image.
    windows = pad(images, (pixels,) * 4, value=fill).unfold(2, height, 1).unfold(3, width, 1)
    return windows[index, :, down, right]


def random_flip(images: Tensor, p: float = 0.5) -> Tensor:
    """Flip each image horizontally with probability `p`."""
    flipped = torch.rand(len(images), device=images.device) < p
    return torch.where(flipped[:, None, None, None], images.flip(-1), images)


def random_affine_points(points: Tensor, amount: float = 0.1, p: float = 0.5) -> Tensor:
    """Map each sequence of 2-d points by x -> c + (I + E)(x - c), with probability `p`.

    c is the centre of the unit square. The entries of E are uniform in [-amount, amount], one E per sequence.

    Args:
        points: Tensor of shape (sequences, points, 2).
        amount: Bound on the entries of E.
        p: Probability that a sequence is transformed.
    """
    return points + (points - 0.5) @ _random_matrices(len(points), amount, p, points.device).mT


def random_affine(images: Tensor, amount: float = 0.1, p: float = 1.0) -> Tensor:
    """Resample each image at c + (I + E)(x - c), with probability `p`: a small rotation, scaling and shear.

    c is the centre of the image, whose sides range from -1 to 1; E is drawn as in `random_affine_points`, one per
    image. Sampling is bilinear, and the border is replicated.
    """
    matrices = torch.eye(2, device=images.device) + _random_matrices(len(images), amount, p, images.device)
    matrices = matrices.to(images.dtype)
    matrices = torch.cat([matrices, matrices.new_zeros(len(images), 2, 1)], dim=2)  # no translation
    grid = affine_grid(matrices, list(images.shape), align_corners=False)
    return grid_sample(images, grid, padding_mode="border", align_corners=False)


def _random_matrices(count: int, amount: float, p: float, device: torch.device) -> Tensor:
    """`count` 2x2 matrices with entries uniform in [-amount, amount]; each is zero with probability 1 - p."""
    matrices = (2 * torch.rand(count, 2, 2, device=device) - 1) * amount
    return matrices * (torch.rand(count, device=device) < p)[:, None, None]
