"""The abstract domain: what the analysis knows about a tensor without its numbers.

An `AbstractValue` has the shape of the tensor that it stands for. At each position it holds a *label*, an integer that
names the unit found there, and possibly a *known constant*:

    labels[p]    the unit at position p; NO_UNIT where there is none (an input, a scalar, a mask)
    constant[p]  the value at position p for every input of the model, valid where known[p]

Labels of units that can only be removed together are *unified* (union-find). The equivalence classes are what `decide`
keeps or removes. A *pinned* label must stay.

Batch and space almost never change an abstract value, so these dimensions are kept at stride 0 (`Tensor.expand`): the
abstract value of a large feature map is as small as its channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = [
    "NO_UNIT",
    "SIZE_FROM_INPUT",
    "AbstractValue",
    "Labels",
    "abstract_values_in",
    "as_matrix",
    "compress",
    "constant_value",
    "constants_along",
    "expand_along",
    "no_units",
    "unexpand",
    "unknown_value",
    "varying_dims",
]

NO_UNIT = 0
"""The label of a position that belongs to no unit. It always stays."""

SIZE_FROM_INPUT = "its size comes from the input"
"""The reason of units that are unified with positions that belong to no unit."""


class Labels:
    """Allocates labels, and records which are unified and which are pinned."""

    def __init__(self) -> None:
        self.count = 1
        self._unified: list[Tensor] = []
        self._pins: list[tuple[Tensor, str]] = []
        self._classes: Tensor | None = None

    def copy(self) -> Labels:
        """The same labels; what is unified or pinned in the copy leaves this object as it is."""
        found = Labels()
        found.count, found._unified, found._pins = self.count, list(self._unified), list(self._pins)
        return found

    def fresh(self, *shape: int) -> Tensor:
        """A tensor of labels that are not used anywhere else."""
        first, self._classes = self.count, None
        self.count += int(torch.Size(shape).numel())
        return torch.arange(first, self.count).view(shape)

    def unify(self, left: Tensor, right: Tensor) -> None:
        """Labels at the same position are kept or removed together; NO_UNIT on one side pins the other."""
        both_sides = torch.broadcast_tensors(left, right)  # type: ignore[no-untyped-call]
        low, high = (side.reshape(-1) for side in unexpand(*both_sides))
        both = (low != NO_UNIT) & (high != NO_UNIT)
        self.pin(torch.maximum(low, high)[~both], SIZE_FROM_INPUT)
        differing = both & (low != high)
        if bool(differing.any()):  # a pair as one number, which is faster to sort than the pair
            pairs = torch.unique(low[differing] * self.count + high[differing])
            self._unified.append(torch.stack([pairs // self.count, pairs % self.count]))
            self._classes = None

    def pin(self, labels: Tensor, reason: str) -> None:
        """These labels must stay; the plan shows the reason."""
        units = torch.unique(labels)
        units = units[units != NO_UNIT]
        if units.numel():
            self._pins.append((units, reason))

    @property
    def pins(self) -> tuple[tuple[Tensor, str], ...]:
        """All pins so far, as pairs of labels and reason."""
        return tuple(self._pins)

    def classes(self) -> Tensor:
        """For each label the smallest label of its class: the connected components of all unified pairs."""
        if self._classes is None:
            self._classes = self._components()
        return self._classes

    def _components(self) -> Tensor:
        root = torch.arange(self.count)
        if not self._unified:
            return root
        left, right = torch.cat(self._unified, dim=1)
        while True:
            low = torch.minimum(root[left], root[right])
            before = root.clone()
            for side in (left, right):
                root.scatter_reduce_(0, before[side], low, "amin")
            root = root[root]
            if torch.equal(root[left], root[right]) and torch.equal(root, before):
                return root


@dataclass(frozen=True)
class AbstractValue:
    """Labels and known constants of one tensor, all three of its shape."""

    labels: Tensor
    constant: Tensor
    known: Tensor

    @property
    def shape(self) -> torch.Size:
        """The shape of the tensor that this value stands for."""
        return self.labels.shape

    @property
    def has_units(self) -> bool:
        """Whether any position belongs to a unit."""
        return bool((unexpand(self.labels)[0] != NO_UNIT).any())

    @property
    def has_constants(self) -> bool:
        """Whether the constant is known at any position."""
        return bool(unexpand(self.known)[0].any())

    @property
    def is_zero(self) -> Tensor:
        """Where the value is known to be zero."""
        return self.known & (self.constant == 0)


def no_units(shape: Sequence[int]) -> Tensor:
    """Labels of a tensor without units."""
    return torch.full((), NO_UNIT).expand(tuple(shape))


def unknown_value(labels: Tensor, dtype: torch.dtype = torch.float32) -> AbstractValue:
    """A value with these labels and no known constant."""
    return AbstractValue(
        labels,
        torch.zeros((), dtype=dtype).expand(labels.shape),
        torch.zeros((), dtype=torch.bool).expand(labels.shape),
    )


def constant_value(tensor: Tensor, labels: Tensor | None = None) -> AbstractValue:
    """A value that is constant everywhere; without labels it has no units."""
    labels = no_units(tensor.shape) if labels is None else labels
    return AbstractValue(labels, tensor, torch.ones((), dtype=torch.bool).expand(tensor.shape))


def abstract_values_in(result: Any) -> list[AbstractValue]:
    """The abstract values of a result, however nested."""
    if isinstance(result, AbstractValue):
        return [result]
    if isinstance(result, tuple | list):
        return [value for item in result for value in abstract_values_in(item)]
    return []


def varying_dims(tensor: Tensor) -> tuple[int, ...]:
    """Dimensions along which a compressed tensor changes."""
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return tuple(d for d, (size, stride) in enumerate(sizes) if size > 1 and stride != 0)


def compress(tensor: Tensor) -> Tensor:
    """The same tensor with stride 0 along every dimension in which it does not change."""
    shape = tensor.shape
    if 0 in shape:
        return tensor
    for dim in varying_dims(tensor):
        first = tensor.narrow(dim, 0, 1)
        if bool((unexpand(tensor, keep=dim)[0] == unexpand(first, keep=dim)[0]).all()):
            tensor = first.expand(shape)
    return tensor


def unexpand(*tensors: Tensor, keep: int | None = None) -> tuple[Tensor, ...]:
    """Tensors of one shape, narrowed to size 1 along every dimension (but `keep`) in which all have stride 0."""
    shape, strides = tensors[0].shape, [tensor.stride() for tensor in tensors]
    varies = [d == keep or any(stride[d] != 0 for stride in strides) for d in range(len(shape))]
    narrow = [size if moves else min(size, 1) for size, moves in zip(shape, varies, strict=True)]
    if narrow == list(shape):
        return tensors
    return tuple(tensor.as_strided(narrow, stride) for tensor, stride in zip(tensors, strides, strict=True))


def expand_along(vector: Tensor, shape: Sequence[int], dim: int) -> Tensor:
    """A vector along one dimension of a shape, expanded along the others."""
    where = [1] * len(shape)
    where[dim] = -1
    return vector.reshape(where).expand(tuple(shape))


def constants_along(value: AbstractValue, dim: int) -> tuple[Tensor, Tensor]:
    """Per index along `dim`: the constant, and whether it is known and the same at every other position."""
    constant, is_known = unexpand(value.constant, value.known, keep=dim)
    constant = constant.movedim(dim, 0).flatten(1)
    is_known = is_known.movedim(dim, 0).flatten(1)
    first = constant[:, :1]
    return first[:, 0], is_known.all(1) & (constant == first).all(1)


def as_matrix(tensor: Tensor, rows: Sequence[int], columns: Sequence[int]) -> Tensor:
    """A tensor as a matrix of these row and column dimensions, at index 0 of all others."""
    rest = [d for d in range(tensor.dim()) if d not in rows and d not in columns]
    for dim in rest:
        tensor = tensor.narrow(dim, 0, 1)
    height = int(torch.Size([tensor.size(d) for d in rows]).numel())
    return tensor.permute(*rest, *rows, *columns).reshape(height, -1)
