"""Units whose slices are spread over processes: the members that this process has, and sums over all of them.

A process sees the members that it has of a bucket's units as a matrix with one column, each member with the number of
its unit. Sums over units are added up by `all_reduce`, one number for each unit; weights are never sent. A member that
several processes have (a replicated parameter) is moved by all of them, and counted by one. Of units that reach across
the stages of a pipeline, all processes take part in the sums, also those that have no members.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

from gossamer.errors import GossamerError
from gossamer.layers import RemoteWeight, Stage, Weight, is_sharded, local_part
from gossamer.penalties import Penalty, ScalarPenalty
from gossamer.regularizers.shards import SplitGroups, own_indices, sharding_groups

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from gossamer.regularizers.units import Bucket, Slices

__all__ = ["SplitBucket", "mesh_groups", "split_bucket", "stage_across"]


@dataclass(frozen=True)
class _Part:
    """Positions along dimension `dim` of the part of a parameter that this process has."""

    weight: Weight
    dim: int
    positions: Tensor

    def read(self, tensor: Tensor) -> Tensor:
        own = local_part(tensor).movedim(self.dim, 0)
        return own[self.positions.to(own.device)].reshape(-1, 1)

    def write_(self, tensor: Tensor, members: Tensor) -> None:
        view = local_part(tensor).movedim(self.dim, 0)
        view[self.positions.to(view.device)] = members.reshape(len(self.positions), *view.shape[1:]).to(view.dtype)


@dataclass(frozen=True)
class SplitBucket:
    """The members of a bucket's units in this process. It has the methods of `Bucket`.

    `across` is the stage of this process if the units have members in several stages of a pipeline.
    """

    units: Tensor
    parts: tuple[_Part, ...]
    sizes: tuple[int, ...]
    sums: SplitGroups
    nothing: Tensor  # (0, 1), of the dtype in which all processes compute
    across: Stage | None = None

    @property
    def weights(self) -> tuple[Weight, ...]:
        """The parameters that hold the units."""
        return tuple(part.weight for part in self.parts)

    def gather(self, tensors: Callable[[Weight], Tensor]) -> Tensor:
        """The matrix (members, 1) of tensors of the parameters' shapes."""
        return torch.cat([self.nothing, *(part.read(tensors(part.weight)) for part in self.parts)])

    def scatter_(self, tensors: Callable[[Weight], Tensor], matrix: Tensor) -> None:
        """The inverse of `gather`, in place."""
        for part, members in zip(self.parts, torch.split(matrix, list(self.sizes)), strict=True):
            part.write_(tensors(part.weight), members)

    def kernel(self, penalty: Penalty, matrix: Tensor, step: Tensor) -> Tensor:
        """The proximal step of a penalty; `step` is one number, or has one for each member."""
        if isinstance(penalty, ScalarPenalty):
            return penalty.kernel(matrix, step)
        return penalty.split_kernel(matrix, step if step.dim() == 0 else step.to(matrix.dtype), self.sums)

    def total(self, penalty: Penalty, matrix: Tensor) -> Tensor:
        """The penalty of all units, from all processes."""
        if isinstance(penalty, ScalarPenalty):
            return self.sums.sum(penalty.phi(matrix.abs())).sum()
        return penalty.split_total(matrix, self.sums)

    def alive(self, matrix: Tensor) -> Tensor:
        """Which units have a member that is not zero, in any process."""
        return self.sums.amax((matrix != 0).double()).flatten() > 0


def mesh_groups(parameters: Iterable[Tensor]) -> tuple[ProcessGroup, ...]:
    """The groups of processes over which parameters are sharded, one for each dimension of their mesh.

    Their order follows from the placements, so it is the same in all processes; names of groups are not.

    Raises:
        GossamerError: If they are not of one mesh.
    """
    sharded = [parameter for parameter in parameters if is_sharded(parameter)]
    groups = {group.group_name: group for weight in sharded for group in sharding_groups(weight)}
    ranks = {rank for weight in sharded for rank in weight.device_mesh.mesh.flatten().tolist()}
    size = 1
    for group in groups.values():
        size *= dist.get_world_size(group)
    if groups and size > len(ranks):
        raise GossamerError(
            f"The parameters of one unit are sharded over {size} processes in {len(groups)} ways, and their device "
            f"mesh has {len(ranks)}. Shard all of them over the dimensions of one mesh."
        )
    return tuple(groups.values())


def stage_across(bucket: Bucket, slices: Iterable[Slices], stage: Stage | None) -> Stage | None:
    """The stage of this process if units of a bucket have members, or parameters that follow them, in several."""
    if stage is None:
        return None
    touched = {own.weight.name for own in slices if bool(torch.isin(own.units, bucket.units).any())}
    return stage if stage.is_split(touched) else None


def split_bucket(
    bucket: Bucket,
    parameter: Callable[[Weight], Tensor],
    processes: tuple[ProcessGroup, ...],
    across: Stage | None = None,
) -> SplitBucket:
    """The members of a bucket in this process; `across` as in `SplitBucket`, `processes` inside of a stage."""
    parts, sizes, tables, counted = [], [], [torch.zeros(0, dtype=torch.long)], [torch.zeros(0, 1, dtype=torch.bool)]
    here = [(slices, index) for slices, index in bucket.parts if not isinstance(slices.weight, RemoteWeight)]
    for slices, index in here:
        held = parameter(slices.weight)
        unit_at = torch.full((slices.shape[slices.dim],), -1)
        unit_at[index] = torch.arange(len(index))[:, None].expand_as(index)
        own = unit_at[own_indices(held, slices.dim)]
        positions = torch.nonzero(own >= 0).flatten()
        local = local_part(held)
        members = local.numel() // max(local.shape[slices.dim], 1)
        parts.append(_Part(slices.weight, slices.dim, positions))
        sizes.append(len(positions) * members)
        tables.append(own[positions].repeat_interleave(members))
        counts = _counts(held, processes) and (across is None or across.owns(slices.weight.name))
        counted.append(torch.full((sizes[-1], 1), counts))
    device, dtype = _computing(bucket, parameter, across)
    groups = processes if across is None else (*processes, *across.groups)
    sums = SplitGroups(torch.cat(tables).to(device), len(bucket.units), groups, torch.cat(counted).to(device))
    nothing = torch.empty(0, 1, dtype=dtype, device=device)
    return SplitBucket(bucket.units, tuple(parts), tuple(sizes), sums, nothing, across)


def _computing(
    bucket: Bucket, parameter: Callable[[Weight], Tensor], across: Stage | None
) -> tuple[torch.device, torch.dtype]:
    """Where and in which dtype the members of a bucket are added up."""
    parameters = [parameter(weight) for weight in bucket.weights]  # the dtype of remote ones is known
    double = any(own.dtype == torch.float64 for own in parameters)
    device = local_part(parameters[0]).device if across is None else across.device
    return device, torch.float64 if double else torch.float32


def _counts(parameter: Tensor, processes: tuple[ProcessGroup, ...]) -> bool:
    """Whether this process counts its part: it is the first of those that have the same one."""
    apart = {group.group_name for group in sharding_groups(parameter)} if is_sharded(parameter) else set()
    return all(dist.get_rank(group) == 0 for group in processes if group.group_name not in apart)
