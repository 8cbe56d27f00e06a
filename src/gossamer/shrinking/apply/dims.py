"""The dimensions of the inputs, and which of them change together.

The length of a sequence is the size of several dimensions (of the tokens, twice of a mask); a batch may be that of one
tensor and, times the number of heads, that of another. The sizes along an `Axis` follow one number n:

    scaled     d_i = m_i * n, as a batch of n and n heads of m each, or d_i = m_i * n^2, as all pairs of n positions
    shifted    d_i = m_i + n, as a length of n and one token more

A dimension may follow several numbers: the positions of all samples, the batch and the length.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from gossamer.example import Call

__all__ = [
    "Axis",
    "Dim",
    "at_least_two",
    "changed_dims",
    "coupled",
    "dims_of",
    "groups_of_dims",
    "is_like",
    "parts_of",
    "sizes_at",
]

_MOST_GROUPS = 8  # of dimensions that are tried at another size, each with a few forward passes at most
_MOST_PAIRS = 24  # of groups, each with one forward pass, which nearly always fails at once


class Dim(NamedTuple):
    """A dimension of a tensor of the call."""

    place: int
    dim: int
    size: int
    is_batch: bool


@dataclass(frozen=True)
class Axis:
    """Dimensions whose sizes follow one number; one whose size follows its square is there twice."""

    dims: tuple[Dim, ...]
    scaled: bool = True

    @property
    def number(self) -> int:
        """The number that all sizes follow in the example."""
        sizes = [dim.size for dim in self.dims]
        return math.gcd(*sizes) if self.scaled else min(sizes)

    @property
    def is_batch(self) -> bool:
        """Whether the batch is among the dimensions."""
        return any(dim.is_batch for dim in self.dims)


def sizes_at(numbers: Mapping[Axis, int]) -> dict[Dim, int]:
    """The sizes of all dimensions of some axes, for other numbers than those of the example."""
    sizes: dict[Dim, Fraction] = {}
    for axis, number in sorted(numbers.items(), key=lambda entry: not entry[0].scaled):
        for dim in axis.dims:
            size = sizes.get(dim, Fraction(dim.size))
            sizes[dim] = size * Fraction(number, axis.number) if axis.scaled else size + number - axis.number
    return {dim: int(size) for dim, size in sizes.items()}


def dims_of(call: Call) -> list[Dim]:
    """All dimensions of the tensors of a call."""
    tensors = call.tensors()
    batch = next((tensor.size(0) for tensor in tensors if tensor.dim()), 0)
    return [
        Dim(place, dim, size, is_batch=dim == 0 and size == batch)
        for place, tensor in enumerate(tensors)
        for dim, size in enumerate(tensor.shape)
    ]


def groups_of_dims(call: Call) -> list[tuple[Dim, ...]]:
    """Dimensions of one size to change together: the batch; all others of that size; those at one position."""
    keys: list[Callable[[Dim], object]] = [
        lambda dim: "batch" if dim.is_batch else None,
        lambda dim: None if dim.is_batch else dim.size,
        lambda dim: None if dim.is_batch else (dim.size, dim.dim),
    ]
    groups = [tuple(group) for key in keys for group in _grouped(dims_of(call), key)]
    return list(dict.fromkeys(groups))[:_MOST_GROUPS]


def coupled(waiting: Sequence[Sequence[Dim]], accepted: Iterable[Axis]) -> list[Axis]:
    """Axes of two groups of different sizes, one of which is `waiting`, since it cannot change alone.

    The other one is waiting too, or `accepted` as a function of a third one.
    """
    functions = [_largest(axis.dims) for axis in accepted if len({dim.size for dim in axis.dims}) > 1]
    pairs = [
        (*left, *right)
        for left, right in [*itertools.combinations(waiting, 2), *itertools.product(waiting, functions)]
        if left[0].size != right[0].size and min(left[0].size, right[0].size) > 0
    ]
    axes = [Axis(dims, scaled) for dims in pairs for scaled in (True, False)]
    axes += [Axis((*dims, *squares)) for dims in pairs if (squares := _squares(dims))]
    return axes[:_MOST_PAIRS]


def _largest(dims: Sequence[Dim]) -> list[Dim]:
    return [dim for dim in dims if dim.size == max(other.size for other in dims)]


def _squares(dims: Sequence[Dim]) -> list[Dim]:
    """Those of several dimensions whose size is the square of the least."""
    return [dim for dim in dims if dim.size == min(other.size for other in dims) ** 2]


def parts_of(dims: Sequence[Dim]) -> list[list[Dim]]:
    """Parts of dimensions of one size that may be independent: each alone, those at one position, those of one tensor.

    The height and width of an image, above all, or the lengths of two sequences.
    """
    keys: list[Callable[[Dim], object]] = [lambda dim: dim, lambda dim: dim.dim, lambda dim: dim.place]
    parts = [part for key in keys for part in _grouped(dims, key)]
    return [part for part in parts if len(part) < len(dims)]


def changed_dims(call: Call, other: Call) -> list[frozenset[int]]:
    """For each tensor of a call, the dimensions that have another size in the other call."""
    return [
        frozenset(d for d in range(own.dim()) if own.size(d) != new.size(d))
        for own, new in zip(call.tensors(), other.tensors(), strict=True)
    ]


def is_like(call: Call, other: Call) -> bool:
    """Whether two calls differ in the values of their tensors only, not in sizes or other arguments."""
    leaves = zip(
        pytree.tree_leaves((call.args, call.kwargs)), pytree.tree_leaves((other.args, other.kwargs)), strict=True
    )
    return all(isinstance(own, Tensor) or own is new or own == new for own, new in leaves) and not any(
        changed_dims(call, other)
    )


def at_least_two(call: Call, dims: Sequence[Set[int]]) -> Call:
    """The call with every size of one repeated along these dimensions of each tensor."""
    waiting = iter(dims)

    def repeat(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            for dim in sorted(next(waiting)):
                leaf = torch.cat([leaf, leaf], dim) if leaf.size(dim) == 1 else leaf
        return leaf

    args, kwargs = pytree.tree_map(repeat, (call.args, call.kwargs))
    return Call(args, kwargs)


def _grouped(dims: Sequence[Dim], key: Callable[[Dim], object]) -> list[list[Dim]]:
    """Dimensions with an equal key; none with the key None."""
    found: dict[object, list[Dim]] = {}
    for dim in dims:
        if key(dim) is not None:
            found.setdefault(key(dim), []).append(dim)
    return list(found.values())
