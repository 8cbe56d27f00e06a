"""The log penalty: between l1 (gamma -> 0) and l0 (gamma -> infinity)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.penalties.base import ScalarPenalty, require_positive

__all__ = ["Log"]


@dataclass(frozen=True)
class Log(ScalarPenalty):
    """value(x) = sum_i log(1 + gamma |x_i|) / log(1 + gamma),  gamma > 0 (Mazumder et al. 2011).

    prox: with k = step / log(1 + gamma), e = 1 / gamma, c = m + e, the stationary points solve (m - x)(x + e) = k, and
    the outer one has the shrinkage

        m - x = 2 q / (1 + sqrt(1 - 4 q / c)),   q = k / c.

    For k <= e^2 the objective is convex and the result is zero up to m = k gamma. Beyond, x is kept where it beats the
    origin: k log(1 + gamma x) < x (m + (m - x)) / 2, which is m^2 - (m - x)^2 without the difference.
    """

    gamma: float = 1.0

    def __post_init__(self) -> None:
        require_positive(self, gamma=self.gamma)

    def phi(self, magnitude: Tensor) -> Tensor:
        """log(1 + gamma m) / log(1 + gamma)."""
        return torch.log1p(self.gamma * magnitude) / math.log1p(self.gamma)

    def shrinkage(self, magnitude: Tensor, step: Tensor) -> Tensor:
        """The outer stationary point where it is the minimum, else the whole magnitude."""
        k = step / math.log1p(self.gamma)
        offset = 1 / self.gamma
        c = magnitude + offset
        q = k / c
        discriminant = 1 - 4 * q / c
        shrinkage = 2 * q / (1 + discriminant.clamp(min=0).sqrt())

        x = magnitude - shrinkage
        beats_zero = (discriminant >= 0) & (x > 0)
        beats_zero &= k * torch.log1p(self.gamma * x.clamp(min=0)) < x * (magnitude + shrinkage) / 2
        keep = torch.where(k <= offset * offset, magnitude > k * self.gamma, beats_zero)
        return torch.where(keep, torch.minimum(shrinkage, magnitude), magnitude)
