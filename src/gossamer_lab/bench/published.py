"""The paper's proximal step as published, in PyTorch operations: a baseline for the speed of ours.

In float32 the published formula is inaccurate (see `gossamer.penalties.TransformedL1`), and a group of zeros becomes
NaN.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["published_integrated_tl1_", "published_transformed_l1"]


def published_transformed_l1(w: Tensor, k: float, a: float) -> Tensor:
    """sgn(w) ((2/3) c cos(phi/3) - 2a/3 + |w|/3) if |w| > t, else 0; c = a + |w|, cos(phi) = 1 - 27ka(a+1) / (2c^3)."""
    threshold = k * (a + 1) / a if k <= a**2 / (2 * (a + 1)) else (2 * k * (a + 1)) ** 0.5 - a / 2
    phi = torch.acos(1 - 27 * k * a * (a + 1) / (2 * (a + w.abs()) ** 3))
    root = torch.sign(w) * (2 / 3 * (a + w.abs()) * torch.cos(phi / 3) - 2 * a / 3 + w.abs() / 3)
    return torch.where(w.abs() > threshold, root, torch.zeros_like(w))


def published_integrated_tl1_(w: Tensor, k: float, a: float) -> None:
    """Transformed l1, then w_g max(0, 1 - k / ||w_g||) on the rows, both with weight k / 2, in place."""
    thresholded = published_transformed_l1(w, k / 2, a)
    norm = thresholded.norm(dim=1, keepdim=True)
    w.copy_(thresholded * torch.clamp(1 - k / 2 / norm, min=0))
