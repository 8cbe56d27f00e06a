"""l1 minus l2: zero exactly on vectors with at most one non-zero entry."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.errors import GossamerError
from gossamer.penalties.base import Penalty

__all__ = ["L1MinusL2"]


@dataclass(frozen=True)
class L1MinusL2(Penalty):
    """value(x) = sum over the vectors of the last dimension of ||x||_1 - ||x||_2.

    prox (Lou and Yan 2018). With z = soft_threshold(w, step):

        max|w| >  step:  z (1 + step / ||z||_2)
        max|w| <= step:  the first entry of largest magnitude stays as it is, the others are zero.

    `step` has to be one number for each vector: there is no closed form in another metric.
    """

    def total(self, w: Tensor) -> Tensor:
        """||x||_1 - ||x||_2, summed over the vectors."""
        l1, l2 = w.abs().sum(dim=-1), torch.linalg.vector_norm(w, dim=-1)
        return torch.sum(l1 - l2)

    def kernel(self, w: Tensor, step: Tensor) -> Tensor:
        """Soft threshold and rescale, or keep the largest entry only."""
        if step.dim() > 0 and step.shape[-1] != 1:
            raise GossamerError(
                f"`L1MinusL2.prox` takes one step for each vector of the last dimension; received a step of shape "
                f"{tuple(step.shape)}. Give it the shape {(*w.shape[:-1], 1)}, or use another penalty."
            )
        if w.shape[-1] == 0:
            return w.clone()
        magnitude = w.abs()
        soft = w - torch.copysign(torch.minimum(magnitude, step), w)
        norm = torch.linalg.vector_norm(soft, dim=-1, keepdim=True)
        rescaled = soft + soft * (step / norm)

        largest = magnitude.argmax(dim=-1, keepdim=True)
        single = torch.zeros_like(w).scatter(-1, largest, w.gather(-1, largest))
        return torch.where(norm > 0, rescaled, single)
