"""Steps that are never taken because the gradient is not finite.

GradScaler does not call `optimizer.step()` then, so neither the weights nor the proximal step see anything. It skips a
few steps while it looks for its scale. If it goes on, the loss itself is not finite, and the training stands still.
"""

from __future__ import annotations

import warnings
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn

from gossamer.proximal.watch import SparsityWarning

__all__ = ["SkippedSteps"]

_MANY = 50  # a scale of 2^16 has become 2^-34


class SkippedSteps:
    """Counts the gradients of one weight between two steps of its optimizer, and warns once if all are not finite."""

    def __init__(self) -> None:
        self._weight: nn.Parameter | None = None
        self._hook: Any = None
        self._count = 0
        self._latest: tuple[ref[Tensor], int] | None = None  # the gradient, and how often it was changed
        self._warned = False

    def follow(self, weight: nn.Parameter) -> None:
        """Count from now on: the optimizer has taken a step, or begins with this weight."""
        self._count = 0
        if weight is not self._weight:
            self.remove()
            self._weight, itself = weight, ref(self)

            def accumulated(weight: Tensor) -> None:
                if (own := itself()) is not None:
                    own._accumulated(weight)

            self._hook = weight.register_post_accumulate_grad_hook(accumulated)  # type: ignore[no-untyped-call]

    def remove(self) -> None:
        """Count no more."""
        if self._hook is not None:
            self._hook.remove()
        self._weight = self._hook = None

    def _accumulated(self, weight: Tensor) -> None:
        gradient = weight.grad
        if gradient is None or self._warned:
            return
        latest, self._latest = self._latest, (ref(gradient), gradient._version)
        # One more change of the same tensor is the next part of an accumulated gradient, not the next step.
        if latest is not None and latest[0]() is gradient and gradient._version == latest[1] + 1:
            return
        self._count += 1
        if self._count < _MANY or bool(torch.isfinite(gradient).all()):
            return
        self._warned = True
        warnings.warn(
            f"{self._count} gradients in succession without a step of the optimizer, and the present one is not "
            "finite. GradScaler skips such steps, so the training stands still: the loss is not finite, or some "
            "operation overflows in float16. Lower the learning rate, look at the loss for the first batch at which "
            "this happens, or use bfloat16.",
            SparsityWarning,
            stacklevel=2,
        )
