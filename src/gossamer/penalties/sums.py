"""Sums over the members of groups, where a group may have members in other processes.

A penalty on groups sees a matrix. Without shards each row is one whole group. With shards a row holds the members of a
group that this process has, and `GroupSums` adds up what the processes have:

    sum, amax, amin, norm    (rows, members) -> (groups, 1), over all members of a group
    spread                   (groups, 1) -> (rows, 1), the number of the group that a row belongs to

`sums` and `norms` take several matrices, whose sums travel together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

__all__ = ["ROWS", "GroupSums"]


class GroupSums:
    """Every row is a group: nothing is sent."""

    def sums(self, matrices: Iterable[Tensor]) -> list[Tensor]:
        """The sums of all groups, for each matrix."""
        return [members.sum(-1, keepdim=True) for members in matrices]

    def norms(self, matrices: Iterable[Tensor]) -> list[Tensor]:
        """The l2 norms of all groups, for each matrix, in its dtype."""
        # In double precision, or the squares of large weights would overflow.
        return [
            torch.linalg.vector_norm(members, dim=-1, keepdim=True, dtype=torch.float64).to(members.dtype)
            for members in matrices
        ]

    def sum(self, members: Tensor) -> Tensor:
        """The sums of all groups."""
        return self.sums([members])[0]

    def norm(self, members: Tensor) -> Tensor:
        """The l2 norms of all groups."""
        return self.norms([members])[0]

    def amax(self, members: Tensor) -> Tensor:
        """The largest member of each group; minus infinity in a group without members."""
        if members.shape[-1] == 0:
            return members.new_full((*members.shape[:-1], 1), -math.inf)
        return members.amax(-1, keepdim=True)

    def amin(self, members: Tensor) -> Tensor:
        """The smallest member of each group; infinity in a group without members."""
        return -self.amax(-members)

    def spread(self, numbers: Tensor) -> Tensor:
        """The number of each row's group."""
        return numbers


ROWS = GroupSums()
