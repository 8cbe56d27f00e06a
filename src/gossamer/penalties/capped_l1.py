"""Capped l1: l1 near zero, constant beyond a."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.penalties.base import ScalarPenalty, require_positive

__all__ = ["CappedL1"]


@dataclass(frozen=True)
class CappedL1(ScalarPenalty):
    """value(x) = sum_i min(|x_i|, a),  a > 0 (Zhang 2009).

    prox: the better of the best point of the sloped piece, x = clamp(m - step, 0, a), and m itself, which costs
    step * a where m > a. There is no step for which the objective is convex.
    """

    a: float = 1.0

    def __post_init__(self) -> None:
        require_positive(self, a=self.a)

    def phi(self, magnitude: Tensor) -> Tensor:
        """min(m, a)."""
        return magnitude.clamp(max=self.a)

    def shrinkage(self, magnitude: Tensor, step: Tensor) -> Tensor:
        """Nothing where the weight is worth its cap, else the soft threshold held below a."""
        sloped = (magnitude - step).clamp(min=0, max=self.a)
        cost = step * sloped + (magnitude - sloped).square() / 2
        keep = (magnitude > self.a) & (cost > step * self.a)
        return torch.where(keep, 0.0, magnitude - sloped)
