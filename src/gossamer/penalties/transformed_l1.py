"""Transformed l1: between l0 (a -> 0) and l1 (a -> infinity)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.penalties.base import ScalarPenalty, require_positive

__all__ = ["TransformedL1"]


@dataclass(frozen=True)
class TransformedL1(ScalarPenalty):
    """value(x) = sum_i (a + 1)|x_i| / (a + |x_i|),  a > 0.

    prox (Zhang and Xin 2018; eqs. g and t of the paper): with k = step, m = |w| and

        t = k (a + 1) / a              if k <= a^2 / (2 (a + 1)),
            sqrt(2 k (a + 1)) - a / 2  otherwise,

    the result is 0 where m <= t. Above t the stationary points solve (m - x)(a + x)^2 = k a (a + 1). The published
    root, a sum of terms of size a, loses the answer to cancellation (in float32, a = 100 and k = 1e-6, the shrinkage
    m - x comes out 3 times too large). With half angles the same root needs no difference:

        c = a + m,   h = min(1, sqrt(27 k a (a + 1) / c^3) / 2),   m - x = (4/3) c sin^2(asin(h) / 3).

    h = 1 is the double root, which rounding may overstep; hence the minimum. All lengths are divided by max(a, 1):
    powers of a large a would overflow.
    """

    a: float = 1.0

    def __post_init__(self) -> None:
        require_positive(self, a=self.a)

    def phi(self, magnitude: Tensor) -> Tensor:
        """(a + 1) m / (a + m)."""
        return (self.a + 1) * magnitude / (self.a + magnitude)

    def shrinkage(self, magnitude: Tensor, step: Tensor) -> Tensor:
        """(4/3) c sin^2(asin(h) / 3) above the threshold t, the whole magnitude below."""
        a, unit = self.a, max(self.a, 1.0)
        c = magnitude / unit + a / unit
        # In this order a zero step gives 0 even where c^(-3/2) overflows.
        h = ((27 * (a / unit) * ((a + 1) / unit) / unit * step).sqrt() / 2 * c.rsqrt() / c).clamp_(max=1.0)
        root = h.asin_().div_(3).sin_().mul_(math.sqrt(4 / 3 * unit)).square_().mul_(c)
        return torch.where(magnitude <= self.threshold(step), magnitude, torch.minimum(root, magnitude))

    def threshold(self, step: Tensor) -> Tensor:
        """t: the largest magnitude that becomes zero. Its branch follows the step, and so the learning rate."""
        a = self.a
        continuous = step <= a / 2 * (a / (a + 1))
        return torch.where(continuous, step * ((a + 1) / a), (2 * (a + 1) * step).sqrt() - a / 2)
