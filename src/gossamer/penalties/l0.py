"""The l0 "norm": the number of weights that are not zero."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.penalties.base import ScalarPenalty

__all__ = ["L0"]


@dataclass(frozen=True)
class L0(ScalarPenalty):
    """value(x) = number of x_i != 0;  prox: hard threshold at sqrt(2 step).

    prox_i = w_i where |w_i| > sqrt(2 step), else 0: keeping w_i costs `step`, dropping it costs w_i^2 / 2.
    """

    def phi(self, magnitude: Tensor) -> Tensor:
        """1 where the magnitude is not zero."""
        return (magnitude != 0).to(magnitude.dtype)

    def shrinkage(self, magnitude: Tensor, step: Tensor) -> Tensor:
        """All of the magnitude up to sqrt(2 step), nothing above."""
        return torch.where(magnitude <= (2 * step).sqrt(), magnitude, 0.0)
