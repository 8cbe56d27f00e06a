"""The step of one weight tensor: weight i moves by size / d_i, with d_i = 1 (euclidean) or the diagonal of a metric.

Adaptive optimizers divide the gradient of each weight by a scale d_i of its own. The metric holds the inverses 1 / d_i;
inverse_i = 0 marks a weight that has had no gradient yet. It waits: with d_i = eps alone, the first step of every
embedding row that is not in the first batch would be a million times too long and end at zero.
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
    """d_i = sqrt(second_i / correction) + eps; a weight with second_i = 0 waits.

    The fused kernel reads the second moments where they are, without a temporary.
    """

    second: Tensor
    correction: float
    eps: float

    def inverse(self) -> Tensor:
        """1 / d_i, or 0."""
        scale = (self.second / self.correction).sqrt_().add_(self.eps)
        return torch.where(self.second > 0, scale.reciprocal_(), 0.0)


class Given(NamedTuple):
    """inverse_i as it stands."""

    values: Tensor

    def inverse(self) -> Tensor:
        """The values."""
        return self.values


Metric = Root | Given


class Step(NamedTuple):
    """size / d_i; without a metric d_i = 1."""

    size: float
    metric: Metric | None = None


# (parameter, its parameter group, the optimizer's state of it), after the optimizer's step
StepRule = Callable[[Tensor, ParameterGroup, State], Step]


def learning_rate(group: ParameterGroup) -> float:
    """The learning rate of a parameter group, checked."""
    rate = group["lr"]
    try:
        value = float(rate)
    except (TypeError, ValueError):
        value = math.nan
    if 0 <= value < math.inf:
        return value
    raise GossamerError(
        f"The learning rate of a parameter group is {rate!r}. The proximal step has the size of the optimizer's step, so "
        "it must be a finite number, not negative."
    )
