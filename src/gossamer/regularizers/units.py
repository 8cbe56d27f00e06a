"""Groups that are removable units: Omega = sum over units u of coefficient_u * penalty(w_u).

w_u is the concatenation of all slices that unit u holds (`gossamer.shrinking.units`): slices of several parameters, so
the groups belong to the regularizer and not to the rule of one weight. Units whose slices have the same sizes form a
*bucket*; the vectors w_u of a bucket are the rows of a matrix, on which penalties act as on any groups.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from gossamer.errors import GossamerError
from gossamer.layers import RemoteWeight, Stage, Weight, is_sharded, local_part
from gossamer.penalties import Penalty
from gossamer.regularizers.kept_norms import KeptNorm
from gossamer.regularizers.shards import own_indices
from gossamer.regularizers.split_units import SplitBucket, mesh_groups, split_bucket, stage_across
from gossamer.shrinking.units import NONE

__all__ = ["Bucket", "Slices", "UnitTerm", "Units", "require_trained"]


@dataclass(frozen=True)
class Slices:
    """Dimension `dim` of a parameter of this shape: index i belongs to unit `units[i]`, or to none (`NONE`).

    A parameter that does not hold its units is only set to zero with them.
    """

    weight: Weight
    dim: int
    units: Tensor
    holds: bool
    shape: torch.Size

    @property
    def size(self) -> int:
        """The number of weights at one index."""
        return math.prod(self.shape) // max(self.shape[self.dim], 1)

    def read(self, tensor: Tensor, index: Tensor) -> Tensor:
        """The slices at an index (units, slices of a unit) of a tensor of this shape, as one row for each unit."""
        whole = local_part(tensor)
        return whole.movedim(self.dim, 0)[index.to(whole.device)].flatten(1)

    def write_(self, tensor: Tensor, index: Tensor, rows: Tensor) -> None:
        """The inverse of `read`, in place."""
        view = local_part(tensor).movedim(self.dim, 0)
        view[index.to(tensor.device)] = rows.view(*index.shape, *view.shape[1:]).to(tensor.dtype)

    def members_of(self, chosen: Tensor) -> Tensor:
        """Which indices belong to chosen units."""
        return (self.units != NONE) & chosen[self.units]

    def cut(self, cut: Callable[[nn.Parameter, Tensor], Tensor]) -> Slices:
        """The same slices after some were removed from the parameter."""
        where = [1] * len(self.shape)
        where[self.dim] = -1
        left = cut(self.weight.parameter, self.units.view(where).expand(self.shape))
        along = left[tuple(slice(None) if d == self.dim else 0 for d in range(left.dim()))]
        return replace(self, units=along.clone(), shape=left.shape)


@dataclass(frozen=True)
class Bucket:
    """Units with the same slices: index (units, slices of a unit) into each parameter that holds them."""

    units: Tensor
    parts: tuple[tuple[Slices, Tensor], ...]

    @property
    def weights(self) -> tuple[Weight, ...]:
        """The parameters that hold the units."""
        return tuple(slices.weight for slices, _ in self.parts)

    @property
    def size(self) -> int:
        """The number of weights of each unit."""
        return sum(slices.size * index.size(1) for slices, index in self.parts)

    def gather(self, tensors: Callable[[Weight], Tensor]) -> Tensor:
        """The matrix (units, size) of tensors of the parameters' shapes: of the parameters themselves, or of steps."""
        return torch.cat([slices.read(tensors(slices.weight), index) for slices, index in self.parts], dim=1)

    def scatter_(self, tensors: Callable[[Weight], Tensor], matrix: Tensor) -> None:
        """The inverse of `gather`, in place."""
        sizes = [slices.size * index.size(1) for slices, index in self.parts]
        for (slices, index), part in zip(self.parts, torch.split(matrix, sizes, dim=1), strict=True):
            slices.write_(tensors(slices.weight), index, part)

    def kernel(self, penalty: Penalty, matrix: Tensor, step: Tensor) -> Tensor:
        """The proximal step of a penalty; `step` is one number, or has one for each member."""
        return penalty.kernel(matrix, step)

    def total(self, penalty: Penalty, matrix: Tensor) -> Tensor:
        """The penalty of all units."""
        return penalty.value(matrix)

    def alive(self, matrix: Tensor) -> Tensor:
        """Which units have a member that is not zero."""
        return matrix.any(1)


@dataclass(frozen=True)
class UnitTerm:
    """coefficient_u * penalty on every unit u. The coefficients have the scales of the layers and sizes in them."""

    penalty: Penalty
    coefficients: Tensor

    def coefficient(self, bucket: Bucket | SplitBucket) -> float:
        """The coefficient of the units of a bucket, which is the same for all of them."""
        return float(self.coefficients[bucket.units[0]])


class Units:
    """The units of a regularizer, its terms on them, and the weights that keep their norms.

    It changes with the model: when units are removed during training, `cut_` removes them here.

    Attributes:
        keeps_norms: whether any weight keeps its norm, here or in another stage of a pipeline.
    """

    def __init__(
        self,
        slices: Iterable[Slices],
        terms: Iterable[UnitTerm],
        kept_norms: Iterable[KeptNorm],
        notes: Iterable[str],
        stage: Stage | None = None,
        keeps_norms: bool | None = None,
    ) -> None:
        self.slices = tuple(slices)
        self.terms = tuple(terms)
        self.kept_norms = tuple(kept_norms)
        self.keeps_norms = bool(self.kept_norms) if keeps_norms is None else keeps_norms
        self.notes = tuple(notes)
        self.stage = stage  # what this process has of a pipeline
        self.version = 0  # counts the calls of `cut_`
        self._sharded: dict[str, Tensor] = {}
        self._local: tuple[Bucket | SplitBucket, ...] | None = None

    def on(self, stage: Stage) -> Units:
        """The same units, with the weights that a stage of a pipeline has."""
        slices = [replace(slices, weight=stage.locate(slices.weight)) for slices in self.slices]
        require_trained(slices)
        kept_norms = [replace(kept, weight=stage.locate(kept.weight)) for kept in self.kept_norms]
        here = [kept for kept in kept_norms if not isinstance(kept.weight, RemoteWeight)]
        return Units(slices, self.terms, here, self.notes, stage, self.keeps_norms)

    def place(self) -> None:
        """Take the parameters that are sharded now for those to come.

        From a forward pass to the backward pass `fully_shard` puts gathered ones in their place.
        """
        parameters = {slices.weight.name: slices.weight.parameter for slices in self.slices}
        parameters |= {kept.weight.name: kept.weight.parameter for kept in self.kept_norms}
        self._sharded = {name: own for name, own in parameters.items() if bool(is_sharded(own))}
        self._local = self._found_local()

    def parameter(self, weight: Weight) -> Tensor:
        """The parameter of a weight: the one that the optimizer has."""
        return self._sharded.get(weight.name, weight.parameter) if self._sharded else weight.parameter

    @property
    def local(self) -> tuple[Bucket | SplitBucket, ...]:
        """The buckets; of units that are spread over processes, what this process has of them."""
        return self._found_local() if self._local is None else self._local

    def _found_local(self) -> tuple[Bucket | SplitBucket, ...]:
        found: list[Bucket | SplitBucket] = []
        for bucket in self.buckets:
            across = stage_across(bucket, self.slices, self.stage)
            if across is None and any(isinstance(weight, RemoteWeight) for weight in bucket.weights):
                continue  # all of it is in another stage
            processes = mesh_groups(self.parameter(weight) for weight in bucket.weights)
            split = across is not None or processes
            found.append(split_bucket(bucket, self.parameter, processes, across) if split else bucket)
        return tuple(found)

    @property
    def count(self) -> int:
        """How many units there are now."""
        return sum(len(bucket.units) for bucket in self.buckets)

    @cached_property
    def buckets(self) -> tuple[Bucket, ...]:
        """All units that hold something, by the sizes of their slices."""
        holding = [slices for slices in self.slices if slices.holds]
        numbers = 1 + max((int(slices.units.max()) for slices in holding if len(slices.units)), default=NONE)
        counts = torch.stack([_count(slices.units, numbers) for slices in holding]) if holding else torch.zeros(0, 0)
        coefficients = [term.coefficients[:numbers] for term in self.terms]
        keys: dict[tuple[float, ...], list[int]] = {}
        for unit, column in enumerate(zip(*counts.tolist(), *(c.tolist() for c in coefficients), strict=True)):
            if any(column[: len(holding)]):
                keys.setdefault(column, []).append(unit)
        return tuple(_bucket(torch.tensor(units), holding) for units in keys.values())

    def value(self) -> Tensor:
        """Omega of the units, of all processes."""
        total, here = torch.zeros((), dtype=torch.float64), []
        for bucket in self.local:
            rows = bucket.gather(lambda weight: self.parameter(weight).detach()).double()
            own = torch.zeros((), dtype=torch.float64)
            for term in self.terms:
                own += term.coefficient(bucket) * bucket.total(term.penalty, rows).cpu()
            if self.stage is None or (isinstance(bucket, SplitBucket) and bucket.across is not None):
                total += own
            else:
                here.append((bucket.weights[0], float(own)))
        if self.stage is not None:
            total += self.stage.total([weight for weight, _ in here], [own for _, own in here])
        return total

    def dead(self) -> Tensor:
        """Which units hold only zeros, by number; of a pipeline, those with members in this stage."""
        numbers = 1 + max((int(slices.units.max()) for slices in self.slices if len(slices.units)), default=NONE)
        dead = torch.zeros(numbers, dtype=torch.bool)
        for bucket in self.local:
            rows = bucket.gather(lambda weight: self.parameter(weight).detach())
            dead[bucket.units] = ~bucket.alive(rows).cpu()
        return dead

    def zeros_of(self, weight: Weight, dead: Tensor) -> Tensor:
        """Where a parameter, or the part of it that this process has, belongs to dead units (`dead()`)."""
        parameter = self.parameter(weight)
        own = local_part(parameter)
        zeros = torch.zeros(own.shape, dtype=torch.bool)
        for slices in self.slices:
            if self.parameter(slices.weight) is parameter:
                gone = slices.members_of(dead)[own_indices(parameter, slices.dim)]
                zeros |= gone.view([-1 if d == slices.dim else 1 for d in range(zeros.dim())])
        return zeros.to(own.device)

    def owned_by(self, parameters: Container[int]) -> Units:
        """The units of these parameters (by identity).

        Raises:
            GossamerError: If a unit has members beside them.
        """
        own = [slices for slices in self.slices if id(slices.weight.parameter) in parameters]
        others = [slices for slices in self.slices if id(slices.weight.parameter) not in parameters]
        for left, right in itertools.product(own, others):
            if bool(torch.isin(left.units[left.units != NONE], right.units).any()):
                raise GossamerError(
                    f"A unit spans the parameters of two optimizers: {left.weight.name} and {right.weight.name} leave "
                    "together. Train both with one optimizer, or leave one of the layers out by `skip`."
                )
        kept = [kept for kept in self.kept_norms if id(kept.weight.parameter) in parameters]
        return Units(own, self.terms, kept, self.notes)

    def cut_(self, cut: Callable[[nn.Parameter, Tensor], Tensor]) -> None:
        """Follow parameters that have become smaller."""
        slices = tuple(slices.cut(cut) for slices in self.slices)
        kept_norms = tuple(kept.cut(cut) for kept in self.kept_norms)
        self.slices, self.kept_norms = slices, kept_norms
        self.version += 1
        self.__dict__.pop("buckets", None)
        self._local = None if self._local is None else self._found_local()

    def describe(self) -> list[str]:
        """Lines that show the units, the weights without a scale, what is joined, and what is not covered."""
        lines = []
        if self.terms:
            terms = " + ".join(str(term.penalty) for term in self.terms)
            lines.append(f"  {self.count:,} units with {terms} on the norm of all that each one holds")
            for bucket in self.buckets:
                held = ", ".join(f"{slices.weight.name}:{slices.dim}" for slices, _ in bucket.parts)
                weights = " + ".join(f"{term.coefficient(bucket):.4g}" for term in self.terms)
                lines.append(f"    {len(bucket.units):>5,} of {bucket.size:>6,} weights, times {weights}: {held}")
        if self.kept_norms:
            names = ", ".join(kept.weight.name for kept in self.kept_norms)
            lines.append(f"  in front of a normalisation, norms are kept: {names}")
        return [*lines, *(f"  {note}" for note in self.notes)]


def require_trained(slices: Iterable[Slices]) -> None:
    """Raise if a parameter that holds units is frozen; those of other stages are not known."""
    holding = [own.weight for own in slices if own.holds and not isinstance(own.weight, RemoteWeight)]
    frozen = sorted({weight.name for weight in holding if not weight.parameter.requires_grad})
    if frozen:
        raise GossamerError(
            f"{', '.join(frozen)} is frozen (`requires_grad` is False) but belongs to units with trained weights, "
            "which could never leave. Train it too, or leave its layer out by `skip`."
        )


def _count(units: Tensor, numbers: int) -> Tensor:
    return torch.bincount(units[units != NONE], minlength=numbers)


def _bucket(units: Tensor, holding: list[Slices]) -> Bucket:
    parts = []
    for slices in holding:
        order = slices.units.argsort(stable=True)
        placed = slices.units[order]
        inside = torch.isin(placed, units)
        if bool(inside.any()):
            parts.append((slices, order[inside].view(len(units), -1)))
    return Bucket(units, tuple(parts))
