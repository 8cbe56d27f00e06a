"""A scalar penalty on the l2 norms of groups of weights: whole groups become zero."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from gossamer.errors import GossamerError
from gossamer.penalties.base import Penalty, ScalarPenalty
from gossamer.penalties.l1 import L1

__all__ = ["Group"]

_NEWTON_STEPS = 12
_GRID_POINTS = 64
_GOLDEN_STEPS = 48
_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class Group(Penalty):
    """value(x) = sum_g phi(||x_g||_2): a scalar penalty phi on the norms of the vectors of the last dimension.

    `Group(L1())` is the group lasso, `Group(TransformedL1(a))` transformed l1 on groups.

    prox with one step for each group: the norm r_g takes the scalar proximal step and the group is rescaled to it,
    w_g (1 - shrinkage(r_g) / r_g). A group of zeros stays zero.

    prox with a step s_i for each weight, the metric of an adaptive optimizer: the minimiser is
    x_i = w_i / (1 + s_i v) with v = phi'(r) / r, r = ||x||, so one number for each group is left to find.
    For l1, r solves sum_i (w_i / (r + s_i))^2 = 1 (x = 0 where sum_i (w_i / s_i)^2 <= 1), by Newton's method from the
    left on the reciprocal of the norm, which is concave: no overshoot. For other phi there may be several minima: the
    best point of a grid over v is refined by golden section and compared with x = 0 and x = w.
    """

    inner: ScalarPenalty = field(default_factory=L1)

    def __post_init__(self) -> None:
        if not isinstance(self.inner, ScalarPenalty):
            raise GossamerError(
                f"`Group(inner=...)` must be a scalar penalty such as L1() or TransformedL1(a); "
                f"received {self.inner!r}."
            )

    def total(self, w: Tensor) -> Tensor:
        """The inner penalty of the group norms, summed."""
        return self.inner.phi(torch.linalg.vector_norm(w, dim=-1)).sum()

    def kernel(self, w: Tensor, step: Tensor) -> Tensor:
        """Rescale each group; in a metric of its own where the step differs inside the groups."""
        if step.dim() == 0 or step.shape[-1] == 1:
            # In double precision, or the squares of large weights would overflow.
            norm = torch.linalg.vector_norm(w, dim=-1, keepdim=True, dtype=torch.float64).to(w.dtype)
            ratio = self.inner.shrinkage(norm, step) / norm
            # A norm of zero (or squares that underflow): all of it goes, unless there is no penalty.
            return w - w * torch.where(norm > 0, ratio, (step > 0).to(w.dtype))
        if isinstance(self.inner, L1):
            return _group_lasso_in_metric(w, step)
        return _group_in_metric(self.inner, w, step)


def _group_lasso_in_metric(w: Tensor, step: Tensor) -> Tensor:
    """x_i = w_i r / (r + s_i), where sum_i (w_i / (r + s_i))^2 = 1."""
    magnitude = w.abs()
    norm = torch.linalg.vector_norm(w, dim=-1, keepdim=True)
    # Two lower bounds of r; the first is r itself where the steps are equal.
    r = torch.maximum(norm - step.amax(-1, keepdim=True), (magnitude - step).amax(-1, keepdim=True)).clamp(min=0)
    for _ in range(_NEWTON_STEPS):
        scaled = torch.where(magnitude > 0, magnitude / (r + step), 0.0)
        length = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
        slope = torch.where(magnitude > 0, scaled.square() / (r + step), 0.0).sum(-1, keepdim=True)
        newton = (length - 1) * length.square() / slope
        r = r + torch.where((length > 1) & torch.isfinite(newton), newton, 0.0)
    return w - w * torch.where(step > 0, step / (r + step), 0.0)


def _group_in_metric(inner: ScalarPenalty, w: Tensor, step: Tensor) -> Tensor:
    """The best of x = 0, x = w, and the minimum over v of phi(||x(v)||) + sum_i (x_i(v) - w_i)^2 / (2 s_i)."""
    wide, steps = w.double(), step.double().expand_as(w)

    def objective(v: Tensor) -> Tensor:
        damped = 1 + steps * v
        norm = torch.linalg.vector_norm(wide / damped, dim=-1, keepdim=True)
        return inner.phi(norm) + (wide.square() * steps * (v / damped).square()).sum(-1, keepdim=True) / 2

    positive = torch.where(steps > 0, steps, torch.nan)
    smallest = positive.nan_to_num(nan=math.inf).amin(-1, keepdim=True)
    largest = positive.nan_to_num(nan=0.0).amax(-1, keepdim=True)
    low, high = (1e-6 / largest).log(), (1e6 / smallest).log()
    grid = [torch.lerp(low, high, i / (_GRID_POINTS - 1)) for i in range(_GRID_POINTS)]
    best = torch.stack([objective(v.exp()) for v in grid]).argmin(0)
    width = (high - low) / (_GRID_POINTS - 1)
    v = _golden_section(objective, low + (best - 1) * width, low + (best + 1) * width)

    moved = wide - wide * (steps * v / (1 + steps * v))
    at_zero = torch.where(wide != 0, wide.square() / (2 * steps), 0.0).sum(-1, keepdim=True)
    at_w = inner.phi(torch.linalg.vector_norm(wide, dim=-1, keepdim=True))
    at_moved = objective(v)
    # Where no step is positive there is no grid: at_moved is then not a number, and x = w wins.
    moved = torch.where(at_moved < at_w, moved, wide)
    return torch.where(at_zero <= torch.fmin(at_moved, at_w), 0.0, moved).to(w.dtype)


def _golden_section(objective: Callable[[Tensor], Tensor], low: Tensor, high: Tensor) -> Tensor:
    """exp of the minimiser of objective(exp(.)) in [low, high], for all groups at once."""
    for _ in range(_GOLDEN_STEPS):
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        descend = objective(left.exp()) < objective(right.exp())
        low, high = torch.where(descend, low, left), torch.where(descend, right, high)
    return ((low + high) / 2).exp()
