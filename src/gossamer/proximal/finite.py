"""Weights that are no longer finite: the end of a training that has diverged."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from gossamer.errors import GossamerError
from gossamer.layers import local_part
from gossamer.regularizers import Rule

__all__ = ["require_finite"]


def require_finite(weights: Iterable[tuple[Rule, Tensor]], step: int) -> None:
    """Raise unless all weights are finite after this step of the optimizer."""
    # One synchronisation for all weights: a finite sum has finite terms; an infinite one may only have overflowed.
    own = [(rule, local_part(weight)) for rule, weight in weights]
    sums = [weight.sum(dtype=torch.float32) for _, weight in own]
    if not sums or math.isfinite(torch.stack([total.to(sums[0].device) for total in sums]).sum().item()):
        return
    for rule, weight in own:
        if not bool(torch.isfinite(weight).all()):
            raise GossamerError(
                f"The weights of `{rule.name}` are no longer finite after step {step} of the optimizer. "
                "The training has diverged: lower the learning rate, or clip the gradients."
            )
