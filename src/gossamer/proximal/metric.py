"""The step of one weight tensor: weight i moves by size / d_i, where d_i is the diagonal of the optimizer's metric.

Adaptive optimizers divide the gradient of each weight by its own scale d_i; for the others d_i = 1. A metric holds the
inverses 1 / d_i. An inverse of 0 marks a weight that has had no gradient yet. Such a weight waits: its d_i would be
eps, and the penalty would set every embedding row that is missing from the first batch to zero in one step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gossamer.errors import GossamerError

__all__ = ["Given", "Metric", "ParameterGroup", "Root", "State", "Step", "StepRule", "learning_rate"]

ParameterGroup = dict[str, Any]
State = dict[str, Any]


class Root(NamedTuple):
    """d_i = sqrt(second_i / correction) + eps; weights with second_i = 0 wait.

    The fused kernel reads the second moments in place, without a temporary tensor.
    """

    second: Tensor
    correction: float
    eps: float

    def inverse(self) -> Tensor:
        """1 / d_i, or 0 for a weight that waits."""
        scale = (self.second / self.correction).sqrt_().add_(self.eps)
        return torch.where(self.second > 0, scale.reciprocal_(), 0.0)


class Given(NamedTuple):
    """The inverses 1 / d_i themselves; 0 for a weight that waits."""

    values: Tensor

    def inverse(self) -> Tensor:
        """The values."""
        return self.values


Metric = Root | Given


class Step(NamedTuple):
    """The step size / d_i; d_i = 1 without a metric."""

    size: float
    metric: Metric | None = None


# (parameter, its parameter group, its optimizer state) -> step; called after `optimizer.step()`
StepRule = Callable[[Tensor, ParameterGroup, State], Step]


def learning_rate(group: ParameterGroup) -> float:
    """The learning rate of a parameter group.

    Raises:
        GossamerError: If it is not a finite non-negative number.
    """
    rate = group["lr"]
    try:
        value = float(rate)
    except (TypeError, ValueError):
        value = math.nan
    if 0 <= value < math.inf:
        return value
    raise GossamerError(
        f"A parameter group has the learning rate {rate!r}. The proximal step uses the step size of the optimizer, so "
        "the learning rate must be finite and not negative."
    )
