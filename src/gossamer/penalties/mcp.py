"""MCP, the minimax concave penalty of Zhang (2010)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.errors import GossamerError
from gossamer.penalties.base import ScalarPenalty, require_positive

__all__ = ["MCP"]


@dataclass(frozen=True)
class MCP(ScalarPenalty):
    """value(x) = sum_i P(|x_i|) with knee L > 0 and gamma > 1,

        P(m) = L m - m^2 / (2 gamma)   m <= gamma L
               gamma L^2 / 2           m >  gamma L.

    prox, k = step. While k < gamma the objective is convex and the shrinkage is k (gamma L - m) / (gamma - k), held
    within [0, m]. From k = gamma on it is concave up to gamma L, so only 0 and m are left: a hard threshold at
    L sqrt(gamma k).
    """

    knee: float = 1.0
    gamma: float = 3.0

    def __post_init__(self) -> None:
        require_positive(self, knee=self.knee, gamma=self.gamma)
        if not self.gamma > 1:
            raise GossamerError(f"`MCP(gamma=...)` must be greater than 1; received {self.gamma!r}.")

    def phi(self, magnitude: Tensor) -> Tensor:
        """The two pieces of P."""
        knee, gamma = self.knee, self.gamma
        bent = knee * magnitude - magnitude.square() / (2 * gamma)
        return torch.where(magnitude <= gamma * knee, bent, gamma * knee**2 / 2)

    def shrinkage(self, magnitude: Tensor, step: Tensor) -> Tensor:
        """The convex formula below step = gamma, a hard threshold from there on."""
        knee, gamma = self.knee, self.gamma
        bent = (step * (knee - magnitude / gamma) / (1 - step / gamma)).clamp(min=0)
        hard = torch.where(magnitude <= knee * (gamma * step).sqrt(), magnitude, 0.0)
        return torch.where(step < gamma, torch.minimum(magnitude, bent), hard)
