"""Weights that are sharded over processes (DTensor): fully_shard, tensor parallel, or both.

Each process takes the proximal step of its own part of a weight. Penalties on single weights need nothing else. For
penalties on groups each process sees its part as a matrix whose rows belong to groups:

    a dimension that indexes groups      sharded: every process has other groups, whole. Nothing is sent.
    a dimension inside of the groups     sharded: every process has members of all groups. Sums over groups are added
                                         up by `all_reduce`, one number for each group; weights are never sent.
    dimension 0 with gates or blocks     sharded: a row for each index; a table says to which group it belongs.

The proximal steps of all processes together are the step on the whole weight, up to the rounding of the sums.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

from gossamer.errors import GossamerError
from gossamer.layers import Groups, Layout, along_dimension, is_sharded
from gossamer.penalties.sums import ROWS, GroupSums

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor.placement_types import Placement

__all__ = ["Shard", "SplitGroups", "own_indices", "shard_of", "sharding_groups", "total_over_shards"]


def total_over_shards(weight: Tensor, own: Tensor) -> Tensor:
    """The sum over a weight, from the sum over the part that is in this process."""
    return _reduced(own.clone(), sharding_groups(weight)) if is_sharded(weight) else own


def sharding_groups(weight: DTensor) -> tuple[ProcessGroup, ...]:
    """The groups of processes that have different parts of a weight, one for each dimension of the mesh."""
    axes = sorted(axis for shards in _shards(weight.placements).values() for axis in shards)
    return tuple(weight.device_mesh.get_group(axis) for axis in axes)


def own_indices(weight: Tensor, dim: int) -> Tensor:
    """Which indices of a dimension this process has."""
    if not is_sharded(weight):
        return torch.arange(weight.shape[dim])
    return _indices(weight.device_mesh, weight.placements, dim, weight.shape[dim]).cpu()


@dataclass(frozen=True)
class Shard:
    """The part of a weight that is in this process, as rows that belong to groups.

    Attributes:
        shape: Its shape.
        order: Its dimensions, with those that index rows first.
        rows: How many of them index rows.
        groups: The sums over groups; `ROWS` if every group is in one process, and a row of the part.
        others: The processes that have other groups of the same weight.
    """

    shape: tuple[int, ...]
    order: tuple[int, ...]
    rows: int
    groups: GroupSums
    others: tuple[ProcessGroup, ...]

    def as_rows(self, local: Tensor) -> Tensor:
        """The part as (rows, members)."""
        sizes = [self.shape[dim] for dim in self.order]
        rows, members = math.prod(sizes[: self.rows]), math.prod(sizes[self.rows :])
        return local.reshape(self.shape).permute(self.order).reshape(rows, members)

    def from_rows(self, rows: Tensor, shape: Sequence[int]) -> Tensor:
        """The inverse of `as_rows`."""
        back = sorted(range(len(self.order)), key=self.order.__getitem__)
        return rows.reshape([self.shape[dim] for dim in self.order]).permute(back).reshape(tuple(shape))

    def total(self, own: Tensor) -> Tensor:
        """The sum over all groups of the weight, from the sum over the groups of this process."""
        return _reduced(own.clone(), self.others)


class SplitGroups(GroupSums):
    """Sums over groups with members in several processes, or in several rows.

    Args:
        table: the group of each row; None if row i is group i.
        count: the number of groups.
        processes: the groups of processes that have members of the same groups.
        counted: whether the sums count a row, (rows, 1); rows that other processes have as well count in one of them.
    """

    def __init__(
        self, table: Tensor | None, count: int, processes: tuple[ProcessGroup, ...], counted: Tensor | None = None
    ) -> None:
        self._table, self._count, self._processes, self._counted = table, count, processes, counted

    def sums(self, matrices: Iterable[Tensor]) -> list[Tensor]:
        """The sums of all groups, for each matrix; one `all_reduce` for all of them."""
        sums = ROWS.sums(matrices)
        own = torch.cat([each.double() for each in sums], 1)
        if self._counted is not None:
            own = torch.where(self._counted, own, 0.0)
        if self._table is not None:
            own = own.new_zeros(self._count, own.shape[1]).index_add_(0, self._table, own)
        reduced = torch.split(_reduced(own, self._processes), 1, dim=1)
        return [each.to(like.dtype) for each, like in zip(reduced, sums, strict=True)]

    def norms(self, matrices: Iterable[Tensor]) -> list[Tensor]:
        """The l2 norms of all groups, for each matrix, in double precision."""
        squares = self.sums(members.double().square() for members in matrices)
        return [each.sqrt() for each in squares]

    def norm(self, members: Tensor) -> Tensor:
        """The l2 norms of all groups, in the dtype of the members."""
        return super().norm(members).to(members.dtype)

    def amax(self, members: Tensor) -> Tensor:
        """The largest member of each group; minus infinity in a group without members."""
        own = ROWS.amax(members)
        if self._table is not None:
            own = own.new_full((self._count, 1), -math.inf).scatter_reduce_(0, self._table[:, None], own, "amax")
        # The dtypes of the stages of a pipeline may differ.
        return _reduced(own.double(), self._processes, largest=True).to(own.dtype)

    def spread(self, numbers: Tensor) -> Tensor:
        """The number of each row's group."""
        return numbers if self._table is None else numbers[self._table]


def shard_of(weight: DTensor, layout: Layout, groups: Groups | None) -> Shard:
    """The part of a weight in this process, in groups of a layout; `None` means the vectors of the last dimension."""
    return _shard_of(
        weight.device_mesh, weight.placements, tuple(weight.shape), tuple(weight.to_local().shape), layout, groups
    )


@lru_cache(maxsize=4096)
def _shard_of(
    mesh: DeviceMesh,
    placements: tuple[Placement, ...],
    shape: tuple[int, ...],
    local_shape: tuple[int, ...],
    layout: Layout,
    groups: Groups | None,
) -> Shard:
    shards = _shards(placements)
    parts: list[_Part] = []
    tables: list[Tensor | None] = []
    split: list[int] = []  # dimensions of the mesh whose processes have members of the same groups
    apart: list[int] = []  # and of other groups
    for dim, size in enumerate(local_shape):
        own = _parts(layout, groups, dim, size, last=dim == len(shape) - 1, sharded=dim in shards)
        parts += own
        for part in own:
            indices = _indices(mesh, placements, dim, shape[dim]) if part.modulus else None
            tables.append(None if indices is None else indices // part.divisor % part.modulus)
        (apart if own[0].indexes and not own[0].modulus else split).extend(shards.get(dim, ()))
    rows = [i for i, part in enumerate(parts) if part.indexes]
    members = [i for i, part in enumerate(parts) if not part.indexes]
    table = _combined([parts[i] for i in rows], [tables[i] for i in rows])
    processes = tuple(mesh.get_group(axis) for axis in sorted(split))
    sums: GroupSums = ROWS
    if processes or table is not None:
        sums = SplitGroups(table, math.prod(parts[i].count for i in rows), processes)
    others = tuple(mesh.get_group(axis) for axis in sorted(apart))
    return Shard(tuple(part.size for part in parts), (*rows, *members), len(rows), sums, others)


@dataclass(frozen=True)
class _Part:
    """A dimension of the local part, or one of the two axes of the layout that dimension 0 holds.

    If it indexes rows, row i of it belongs to the group (index of i in the whole weight // divisor) % modulus; with
    modulus 0, to group i.
    """

    size: int
    indexes: bool
    divisor: int = 1
    modulus: int = 0

    @property
    def count(self) -> int:
        """The number of groups along it."""
        return self.modulus or self.size


def _parts(layout: Layout, groups: Groups | None, dim: int, size: int, *, last: bool, sharded: bool) -> list[_Part]:
    if groups is None:
        return [_Part(size, not last)]
    stacked = layout.axes[0] in ("block", "gate")  # dimension 0 has two axes
    if dim > 0 or not stacked:
        return [_Part(size, layout.indexes(min(dim + stacked, len(layout.axes) - 1), groups))]
    (outer, inner), (by_outer, by_inner) = layout.sizes[:2], (layout.indexes(axis, groups) for axis in (0, 1))
    if not sharded:
        return [_Part(outer, by_outer), _Part(inner, by_inner)]
    if by_outer == by_inner:
        return [_Part(size, by_outer)]
    return [_Part(size, True, inner, outer) if by_outer else _Part(size, True, 1, inner)]


def _combined(parts: Sequence[_Part], tables: Sequence[Tensor | None]) -> Tensor | None:
    """The group of each row, from the groups along each part; None if row i is group i."""
    if all(table is None for table in tables):
        return None
    rows = torch.zeros(1, dtype=torch.int64)
    for part, table in zip(parts, tables, strict=True):
        own = torch.arange(part.size) if table is None else table
        rows = (rows.to(own.device)[:, None] * part.count + own).flatten()
    return rows


def _shards(placements: Sequence[Placement]) -> dict[int, list[int]]:
    """Dimension of a weight -> dimensions of the mesh over which it is sharded."""
    shards: dict[int, list[int]] = {}
    for axis, placement in enumerate(placements):
        if placement.is_partial():
            raise GossamerError(
                f"A weight has the placement {placement}: its processes have summands, not parts, and the penalty of "
                "a sum is not the sum of penalties. Redistribute the weight to Shard or Replicate."
            )
        if not placement.is_replicate():
            shards.setdefault(placement.dim, []).append(axis)  # type: ignore[attr-defined]  # Shard and _StridedShard
    return shards


def _indices(mesh: DeviceMesh, placements: Sequence[Placement], dim: int, size: int) -> Tensor:
    """Which indices of a dimension this process has."""
    from torch.distributed.tensor import Replicate, distribute_tensor

    own = _shards(placements).get(dim, [])
    along = [along_dimension(each, 0) if axis in own else Replicate() for axis, each in enumerate(placements)]
    return distribute_tensor(torch.arange(size), mesh, along, src_data_rank=None).to_local()  # nothing is sent


def _reduced(own: Tensor, processes: Sequence[ProcessGroup], *, largest: bool = False) -> Tensor:
    """The sum or the largest of the numbers of all processes, in place."""
    for group in processes:
        dist.all_reduce(own, dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM, group)
    return own
