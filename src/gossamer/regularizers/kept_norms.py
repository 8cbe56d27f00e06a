"""Norms that are kept: a weight without a scale has only a direction for the penalty to act on.

w_b <- w_b * (norm of w_b before the proximal step) / (norm after it), for each block b of rows of the weight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from gossamer.layers import Weight, local_part
from gossamer.regularizers.shards import own_indices, total_over_shards

__all__ = ["KeptNorm"]


@dataclass(frozen=True)
class KeptNorm:
    """A weight in front of a normalisation: each block of its rows keeps its norm through the proximal step.

    Row i belongs to block `blocks[i]`; the rows of a block follow each other.
    """

    weight: Weight
    blocks: Tensor
    shape: torch.Size

    def norms(self, tensor: Tensor) -> Tensor:
        """The norm of each block."""
        part, blocks = local_part(tensor), self._own_blocks(tensor)
        squares = part.flatten(1).double().square().sum(1)
        count = int(self.blocks.max()) + 1 if len(self.blocks) else 0
        own = torch.zeros(count, dtype=torch.float64, device=part.device).index_add_(0, blocks, squares)
        return total_over_shards(tensor, own).sqrt()

    def restore_(self, tensor: Tensor, norms: Tensor) -> None:
        """Give each block the norm that it had; blocks of zeros stay zero."""
        own, part = self.norms(tensor), local_part(tensor)
        factors = torch.where(own > 0, norms / own, 1.0)[self._own_blocks(tensor)]
        part.mul_(factors.to(part.dtype).view(-1, *(1,) * (part.dim() - 1)))

    def _own_blocks(self, tensor: Tensor) -> Tensor:
        """The block of each row that this process has."""
        return self.blocks[own_indices(tensor, 0)].to(local_part(tensor).device)

    def cut(self, cut: Callable[[nn.Parameter, Tensor], Tensor]) -> KeptNorm:
        """The same blocks after some rows were removed."""
        wide = self.blocks.view(-1, *(1,) * (len(self.shape) - 1)).expand(self.shape)
        left = cut(self.weight.parameter, wide)
        return replace(self, blocks=left.flatten(1)[:, 0].clone(), shape=left.shape)
