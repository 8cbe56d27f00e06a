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
from gossamer.penalties.l2 import L2

__all__ = ["Group"]

_NEWTON_STEPS = 12
_GRID_POINTS = 64
_BISECTIONS = 60


@dataclass(frozen=True)
class Group(Penalty):
    """value(x) = sum_g phi(||x_g||_2): a scalar penalty phi on the norms of the vectors of the last dimension.

    `Group(L1())` is the group lasso, `Group(TransformedL1(a))` transformed l1 on groups.

    prox with one step for each group: the norm r_g takes the scalar proximal step and the group is rescaled to it,
    w_g (1 - shrinkage(r_g) / r_g). A group of zeros stays zero.

    prox with a step s_i for each weight, the metric of an adaptive optimizer: the minimiser is
    x_i = w_i / (1 + s_i v) with v = phi'(r) / r, r = ||x||, so one number for each group is left to find.
    For l1, r solves sum_i (w_i / (r + s_i))^2 = 1 (x = 0 where sum_i (w_i / s_i)^2 <= 1), by Newton's method from the
    left on the reciprocal of the norm, which is concave: no overshoot. For other phi there may be several minima: those
    points of a grid over v between which v r = phi'(r) has a root are compared, the best is refined by bisection, and
    compared with x = 0 and, where phi is flat, with x = w.
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
        if isinstance(self.inner, L2):
            return self.inner.kernel(w, step)  # half of a squared norm is a sum over weights
        return _group_in_metric(self.inner, w, step)


def _group_lasso_in_metric(w: Tensor, step: Tensor) -> Tensor:
    """x_i = w_i r / (r + s_i), where sum_i (w_i / (r + s_i))^2 = 1."""
    magnitude = w.abs()
    norm = torch.linalg.vector_norm(w, dim=-1, keepdim=True)
    # Two lower bounds of r; the first, with the mean step weighted by w^2, is r itself where the steps are equal.
    shares = torch.where(norm > 0, magnitude / norm, 0.0)
    mean = (shares.square() * step).sum(-1, keepdim=True)
    r = torch.maximum(norm - mean, (magnitude - step).amax(-1, keepdim=True)).clamp(min=0)
    for _ in range(_NEWTON_STEPS):
        scaled = torch.where(magnitude > 0, magnitude / (r + step), 0.0)
        length = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
        slope = torch.where(magnitude > 0, scaled.square() / (r + step), 0.0).sum(-1, keepdim=True)
        newton = (length - 1) * length.square() / slope
        r = r + torch.where((length > 1) & torch.isfinite(newton), newton, 0.0)
    return w - w * torch.where(step > 0, step / (r + step), 0.0)


def _group_in_metric(inner: ScalarPenalty, w: Tensor, step: Tensor) -> Tensor:
    """The best of x = 0, x = w, and the minima over v of phi(||x(v)||) + sum_i (x_i(v) - w_i)^2 / (2 s_i)."""
    wide, steps = w.double(), step.double().expand_as(w)

    def norm(v: Tensor) -> Tensor:
        length: Tensor = torch.linalg.vector_norm(wide / (1 + steps * v), dim=-1, keepdim=True)
        return length

    def objective(v: Tensor) -> Tensor:
        moved = (wide.square() * steps * (v / (1 + steps * v)).square()).sum(-1, keepdim=True) / 2
        return inner.phi(norm(v)) + moved

    def rises(v: Tensor) -> Tensor:
        r = norm(v)
        return v * r > _slope(inner, r)

    length = norm(torch.zeros((), dtype=torch.float64, device=w.device))
    slope = _slope(inner, length)
    low, high = _range(wide, steps, torch.where(slope > 0, slope / length, math.inf))
    grid = [torch.lerp(low, high, i / (_GRID_POINTS - 1)).exp() for i in range(_GRID_POINTS)]
    costs, rising = torch.stack([objective(v) for v in grid]), torch.stack([rises(v) for v in grid])
    minimum = ~rising[:-1] & rising[1:]  # between two points of the grid
    best = torch.where(minimum, torch.minimum(costs[:-1], costs[1:]), math.inf).argmin(0)
    width = (high - low) / (_GRID_POINTS - 1)
    v = _bisected(rises, low + best * width, low + (best + 1) * width)

    moved = wide - wide * (steps * v / (1 + steps * v))
    at_zero = torch.where(wide != 0, wide.square() / (2 * steps), 0.0).sum(-1, keepdim=True)
    at_moved = torch.where(minimum.any(0), objective(v), math.inf)
    # Where phi has a slope, x = w is never best; elsewhere it may be.
    at_w = torch.where((slope > 0) & minimum.any(0), math.inf, inner.phi(length))
    moved = torch.where(at_moved < at_w, moved, wide)
    return torch.where(at_zero <= torch.fmin(at_moved, at_w), 0.0, moved).to(w.dtype)


def _range(w: Tensor, steps: Tensor, least: Tensor) -> tuple[Tensor, Tensor]:
    """The range of log v from x(v) = w to x(v) = 0, up to rounding; no root is below `least`."""
    moving = torch.where((steps > 0) & (w != 0), steps, torch.nan)
    smallest = moving.nan_to_num(nan=math.inf).amin(-1, keepdim=True)
    largest = moving.nan_to_num(nan=0.0).amax(-1, keepdim=True)
    return torch.minimum(1e-6 / largest, least / 4).log(), (1e6 / smallest).log()


def _bisected(rises: Callable[[Tensor], Tensor], low: Tensor, high: Tensor) -> Tensor:
    """v where the objective begins to rise, for all groups at once; log v is between `low` and `high`."""
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        rising = rises(middle.exp())
        low, high = torch.where(rising, low, middle), torch.where(rising, middle, high)
    return ((low + high) / 2).exp()


def _slope(inner: ScalarPenalty, r: Tensor) -> Tensor:
    """phi'(r), by automatic differentiation: a penalty has to give phi alone. Zero where phi is a step, as in l0."""
    with torch.enable_grad():
        leaf = r.detach().requires_grad_()
        total = inner.phi(leaf).sum()
        if not total.requires_grad:
            return torch.zeros_like(r)
        slope: Tensor = torch.autograd.grad(total, leaf)[0]
        return slope
