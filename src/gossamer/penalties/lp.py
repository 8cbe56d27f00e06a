"""The lp quasi-norm to the power p, for 0 < p < 1."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.errors import GossamerError
from gossamer.penalties.base import ScalarPenalty

__all__ = ["Lp"]

# Enough for float64 from the start below, for every p: a test measures the residual.
_NEWTON_STEPS = 6


@dataclass(frozen=True)
class Lp(ScalarPenalty):
    """value(x) = sum_i |x_i|^p,  0 < p < 1: the separable form, without the outer power 1/p.

    prox, k = step. The result is zero up to m = (2 - p) / (2 (1 - p)) * y, where y = (2 k (1 - p))^(1 / (2 - p)) is the
    smallest non-zero result. Above, the outer root of m - x = k p x^(p-1) has a closed form for p = 1/2 (a cubic in
    sqrt(x); Xu et al. 2012) and p = 2/3 (a quartic in x^(1/3); Cao et al. 2013). For other p, Newton's method on the
    shrinkage d = m - x, with f(d) = d - k p (m - d)^(p-1), starts at d = k p m^(p-1): f is concave and increasing up to
    the root, so the iterates rise to it without overshooting, and f' >= 1 - p/2 there, so they do it quadratically.
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        if not 1e-3 <= self.p <= 1 - 1e-3:
            raise GossamerError(f"`Lp(p=...)` must be between 0 and 1, 0.001 away from both; received {self.p!r}.")

    def phi(self, magnitude: Tensor) -> Tensor:
        """m^p."""
        return magnitude.pow(self.p)

    def shrinkage(self, magnitude: Tensor, step: Tensor) -> Tensor:
        """k p x^(p-1) at the outer root x, the whole magnitude below the threshold."""
        p = self.p
        smallest = (2 * (1 - p) * step).pow(1 / (2 - p))
        threshold = smallest * ((2 - p) / (2 * (1 - p)))
        outer = torch.maximum(magnitude, threshold)  # the roots below are real only from the threshold on
        if p == 1 / 2:
            shrinkage = _shrinkage_one_half(outer, step)
        elif p == 2 / 3:
            shrinkage = _shrinkage_two_thirds(outer, step)
        else:
            shrinkage = _shrinkage_newton(outer, step, p)
        return torch.where(magnitude <= threshold, magnitude, torch.minimum(shrinkage, magnitude))


def _shrinkage_one_half(m: Tensor, k: Tensor) -> Tensor:
    """y = sqrt(x) is the largest root of y^3 - m y + k/2 = 0, by Viete's cosine; the shrinkage is k / (2 y)."""
    third = m / 3
    angle = (-k / 4 / third / third.sqrt()).acos() / 3
    return k / (4 * third.sqrt() * angle.cos())


def _shrinkage_two_thirds(m: Tensor, k: Tensor) -> Tensor:
    """z = x^(1/3) is the largest root of z^4 - m z + 2k/3 = 0, by Ferrari; the shrinkage is 2k / (3 z).

    The quartic splits into (z^2 + u z + ...)(z^2 - u z + ...) with u^2 = (4/3) sqrt(2k) cosh(acosh(g) / 3) and
    g = (27/16) m^2 (2k)^(-3/2). Where g overflows, the shrinkage is its limit (2k/3) m^(-1/3).
    """
    scale = (2 * k).sqrt()
    g = (27 / 16) * (m / scale) * (m / scale) / scale
    u = (4 / 3 * scale * (g.acosh() / 3).cosh()).sqrt()
    z = (u + (2 * m / u - u * u).sqrt()) / 2
    limit = m.pow(1 / 3)
    return 2 / 3 * k / torch.where(torch.isfinite(z), z, limit)


def _shrinkage_newton(m: Tensor, k: Tensor, p: float) -> Tensor:
    """The smaller root of d = k p (m - d)^(p-1), from d = k p m^(p-1)."""
    shrinkage = k * p * m.pow(p - 1)
    for _ in range(_NEWTON_STEPS):
        x = m - shrinkage
        pull = k * p * x.pow(p - 1)
        shrinkage = shrinkage + (pull - shrinkage) / (1 - pull * ((1 - p) / x))
    return shrinkage
