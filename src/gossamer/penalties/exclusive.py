"""Exclusive sparsity: the weights of a group compete for its l1 norm."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.penalties.base import Penalty

__all__ = ["Exclusive"]


@dataclass(frozen=True)
class Exclusive(Penalty):
    """value(x) = 1/2 sum over the vectors of the last dimension of ||x||_1^2.

    prox: every weight is soft-thresholded by k_i S, where S = ||prox||_1. With the weights in descending order of
    |w_i| / k_i, the j leading ones survive and

        S = sum_{i <= j} |w_i| / (1 + sum_{i <= j} k_i),

    j being the last place at which |w_j| / k_j is still above that ratio.

    `exact=False` is the approximation in the published code of combined group and exclusive sparsity (Yoon and Hwang
    2017): S is the l1 norm of the *input*, which shrinks more than the minimiser does. It is there for comparison.
    """

    exact: bool = True

    def total(self, w: Tensor) -> Tensor:
        """Half the sum of the squared l1 norms."""
        return w.abs().sum(dim=-1).square().sum() / 2

    def kernel(self, w: Tensor, step: Tensor) -> Tensor:
        """Soft threshold by step * S."""
        if w.shape[-1] == 0:
            return w.clone()
        magnitude = w.abs()
        survivors = _surviving_l1 if self.exact else _input_l1
        return w - torch.copysign(torch.minimum(magnitude, step * survivors(magnitude, step)), w)


def _input_l1(magnitude: Tensor, step: Tensor) -> Tensor:
    del step  # the published approximation looks at the input alone
    return magnitude.sum(dim=-1, keepdim=True)


def _surviving_l1(magnitude: Tensor, step: Tensor) -> Tensor:
    steps = torch.zeros_like(magnitude) + step  # a sharded tensor (DTensor) does not mix with an expanded one
    # A step of zero is never thresholded: it goes first, as |w| / 0 does, but for 0 / 0.
    rank = torch.where(magnitude > 0, magnitude / steps, 0.0)
    rank, order = rank.sort(dim=-1, descending=True)
    sums = magnitude.gather(-1, order).cumsum(-1) / (1 + steps.gather(-1, order).cumsum(-1))
    # The ratio rises while weights survive and falls after: its largest value is the one at the last survivor.
    return sums.amax(dim=-1, keepdim=True)
