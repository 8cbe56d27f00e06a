"""SCAD, the smoothly clipped absolute deviation of Fan and Li (2001)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.errors import GossamerError
from gossamer.penalties.base import ScalarPenalty, require_positive

__all__ = ["SCAD"]


@dataclass(frozen=True)
class SCAD(ScalarPenalty):
    """value(x) = sum_i P(|x_i|) with knee L > 0 and gamma > 2,

        P(m) = L m                                           m <= L
               (2 gamma L m - m^2 - L^2) / (2 (gamma - 1))   L < m < gamma L
               L^2 (gamma + 1) / 2                           m >= gamma L.

    prox, k = step. While k < gamma - 1 the objective is convex and the shrinkage is the least of
    m, k L and k (gamma L - m) / (gamma - 1 - k), not below 0. From k = gamma - 1 on, the middle piece is concave and
    cannot hold the minimum: the best point of the first piece, clamp(m - k L, 0, L), is compared with m itself, which
    costs k L^2 (gamma + 1) / 2 where m > gamma L.
    """

    knee: float = 1.0
    gamma: float = 3.7

    def __post_init__(self) -> None:
        require_positive(self, knee=self.knee, gamma=self.gamma)
        if not self.gamma > 2:
            raise GossamerError(f"`SCAD(gamma=...)` must be greater than 2; received {self.gamma!r}.")

    def phi(self, magnitude: Tensor) -> Tensor:
        """The three pieces of P."""
        knee, gamma = self.knee, self.gamma
        bent = (2 * gamma * knee * magnitude - magnitude.square() - knee**2) / (2 * (gamma - 1))
        flat = knee**2 * (gamma + 1) / 2
        return torch.where(magnitude <= knee, knee * magnitude, torch.where(magnitude < gamma * knee, bent, flat))

    def shrinkage(self, magnitude: Tensor, step: Tensor) -> Tensor:
        """The convex formula below step = gamma - 1, the better of two candidates from there on."""
        knee, gamma = self.knee, self.gamma
        slope = step * knee
        bent = step * (knee * (gamma / (gamma - 1)) - magnitude / (gamma - 1)) / (1 - step / (gamma - 1))
        convex = torch.minimum(torch.minimum(magnitude, slope), bent.clamp(min=0))

        first = (magnitude - slope).clamp(min=0, max=knee)
        cost = slope * first + (magnitude - first).square() / 2
        keep = (magnitude > gamma * knee) & (cost > slope * (knee * (gamma + 1) / 2))
        jump = torch.where(keep, 0.0, magnitude - first)
        return torch.where(step < gamma - 1, convex, jump)
