"""The l1 norm: the convex surrogate of l0."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.penalties.base import ScalarPenalty

__all__ = ["L1"]


@dataclass(frozen=True)
class L1(ScalarPenalty):
    """value(x) = sum_i |x_i|;  prox: soft threshold, sign(w_i) max(|w_i| - step, 0)."""

    def phi(self, magnitude: Tensor) -> Tensor:
        """The magnitude."""
        return magnitude

    def shrinkage(self, magnitude: Tensor, step: Tensor) -> Tensor:
        """`step`, or the whole magnitude where that is less."""
        return torch.minimum(magnitude, step)
