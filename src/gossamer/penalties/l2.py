"""The squared l2 norm, halved: ridge. It shrinks and never zeroes."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gossamer.penalties.base import ScalarPenalty

__all__ = ["L2"]


@dataclass(frozen=True)
class L2(ScalarPenalty):
    """value(x) = 1/2 sum_i x_i^2;  prox_i = w_i / (1 + step)."""

    def phi(self, magnitude: Tensor) -> Tensor:
        """m^2 / 2."""
        return 0.5 * magnitude.square()

    def shrinkage(self, magnitude: Tensor, step: Tensor) -> Tensor:
        """m - m / (1 + step), without the difference."""
        return magnitude * (step / (1 + step))
