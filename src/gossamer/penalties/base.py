"""What every penalty is: a sum over weights, and the proximal step that minimises it exactly.

    prox(w, step) = argmin_x  step * value(x) + 1/2 ||x - w||^2

A `step` that differs from element to element means the metric that goes with it,

    argmin_x  value(x) + sum_i (x_i - w_i)^2 / (2 step_i),

which is the same thing where `step` is one number. So a per-element step is at once the per-weight
strength of a separable penalty and the diagonal metric of an adaptive optimizer.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from gossamer.errors import GossamerError

__all__ = ["Penalty", "ScalarPenalty", "require_positive"]


class Penalty(ABC):
    """A penalty on weights: `value` sums it, `prox` is its exact proximal operator.

    A new penalty implements `total` and `kernel`. Both may assume float32 or float64 weights and a checked step;
    bfloat16 and float16 weights are computed in float32 and rounded once at the end, so a shrinkage below half a
    unit in the last place of such a weight is lost: keep float32 master weights, as autocast does.
    """

    def value(self, w: Tensor) -> Tensor:
        """The penalty summed over `w`, as a tensor without dimensions."""
        return self.total(_computable(w))

    def prox(self, w: Tensor, step: float | Tensor) -> Tensor:
        """argmin_x step * value(x) + 1/2 ||x - w||^2, in the dtype and shape of `w`."""
        computable = _computable(w)
        # A number alone is a vector of one.
        vector = computable if w.dim() else computable.reshape(1)
        return self.kernel(vector, _checked_step(step, vector)).to(w.dtype).reshape(w.shape)

    @abstractmethod
    def total(self, w: Tensor) -> Tensor:
        """The arithmetic of `value`, for float32 or float64."""

    @abstractmethod
    def kernel(self, w: Tensor, step: Tensor) -> Tensor:
        """The arithmetic of `prox`: nothing is checked.

        `step` is a float64 tensor without dimensions, whose own arithmetic then stays in double precision,
        or a tensor of `w`'s dtype that broadcasts to `w`.
        """


class ScalarPenalty(Penalty):
    """A penalty that is the same function of every |w_i|, such as l1: sum_i phi(|w_i|).

    A new one implements `phi` and `shrinkage`. The proximal step is written as the distance that a magnitude moves
    towards zero, because |w| - prox(w) is often a million times smaller than |w|, and computing it as a
    difference would leave rounding only.
    """

    @abstractmethod
    def phi(self, magnitude: Tensor) -> Tensor:
        """phi(m) for each magnitude m >= 0."""

    @abstractmethod
    def shrinkage(self, magnitude: Tensor, step: Tensor) -> Tensor:
        """m - argmin_{x >= 0} (step * phi(x) + (x - m)^2 / 2) for each magnitude m; m itself where that argmin is 0."""

    def total(self, w: Tensor) -> Tensor:
        """sum_i phi(|w_i|)."""
        return self.phi(w.abs()).sum()

    def kernel(self, w: Tensor, step: Tensor) -> Tensor:
        """Move every weight towards zero by its shrinkage; w - w is +0.0, so zeros carry no sign."""
        return w - torch.copysign(self.shrinkage(w.abs(), step), w)


def require_positive(owner: object, **values: float) -> None:
    """Raise unless each named value is positive, and not so large or small that float32 could not compute with it."""
    for name, value in values.items():
        if not 1e-30 <= value <= 1e30:
            raise GossamerError(
                f"`{type(owner).__name__}({name}=...)` must be a positive number between 1e-30 and 1e30; "
                f"received {value!r}."
            )


def _computable(w: Tensor) -> Tensor:
    if not w.is_floating_point():
        raise GossamerError(
            f"Penalties act on real floating-point weights; received a tensor of dtype {w.dtype}. "
            "Convert it first, for example with `.float()`."
        )
    return w if w.dtype in (torch.float32, torch.float64) else w.float()


def _checked_step(step: float | Tensor, w: Tensor) -> Tensor:
    if not isinstance(step, Tensor):
        if not (math.isfinite(step) and step >= 0):
            raise GossamerError(f"`step` must be finite and not negative; received {step!r}.")
        return torch.tensor(step, dtype=torch.float64)
    if step.is_complex() or step.dtype == torch.bool:
        raise GossamerError(f"`step` must be real; received a tensor of dtype {step.dtype}.")
    if not bool((torch.isfinite(step) & (step >= 0)).all()):
        raise GossamerError("`step` must be finite and not negative; received a tensor with other values.")
    if step.dim() == 0:
        return step.double()
    try:
        step.expand_as(w)
    except RuntimeError:
        raise GossamerError(
            f"`step` of shape {tuple(step.shape)} does not broadcast to weights of shape {tuple(w.shape)}."
        ) from None
    return step.to(w.dtype)
