"""The dimensions of the inputs, and which of them change together.

The length of a sequence is the size of several dimensions (of the tokens, twice of a mask); a batch may be that of one
tensor and, times the number of heads, that of another. The sizes along an `Axis` follow one number n:

    scaled     d_i = m_i * n, as a batch of n and n heads of m each, or d_i = m_i * n^2, as all pairs of n positions
    shifted    d_i = m_i + n, as a length of n and one token more

A dimension may follow several numbers: the positions of all samples, the batch and the length. An integer among the
arguments may be a size too, such as the height of an image whose pixels are given as a sequence: it counts as the shape
of a tensor of one dimension.
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
    "elements",
    "groups_of_dims",
    "groups_of_numbers",
    "is_like",
    "parts_of",
    "shapes_at",
    "sizes_at",
]

_MOST_SINGLES = 24  # dimensions that are tried alone, each with a few forward passes at most
_MOST_COUPLED = 48  # axes of several groups, each with two forward passes at most, which nearly always fail at once


class Dim(NamedTuple):
    """A dimension of a tensor of the call, or an integer: the places of the integers follow those of the tensors."""

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
            scales = axis.scaled and axis.number > 0
            sizes[dim] = size * Fraction(number, axis.number) if scales else size + number - axis.number
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


def groups_of_numbers(call: Call) -> list[tuple[Dim, ...]]:
    """The positive integers among the arguments: those of each list, such as the lengths of sequences; each alone."""
    first = len(call.tensors())
    paths, leaves = zip(*pytree.tree_flatten_with_path((call.args, call.kwargs))[0], strict=True)
    places = [place for place, leaf in enumerate(leaves) if type(leaf) is int]
    numbers = {Dim(first + k, 0, leaves[place], False): paths[place][:-1] for k, place in enumerate(places)}
    positive = [number for number in numbers if number.size > 0]
    lists = _grouped(positive, lambda number: numbers[number] if len(numbers[number]) > 1 else None)
    return list(dict.fromkeys([*map(tuple, lists), *((number,) for number in positive)]))


def groups_of_dims(call: Call) -> list[tuple[Dim, ...]]:
    """Dimensions of one size to change together: the batch; all others of that size; those at one position; each alone.

    A length may be the same as the width of another input.
    """
    keys: list[Callable[[Dim], object]] = [
        lambda dim: "batch" if dim.is_batch else None,
        lambda dim: None if dim.is_batch else dim.size,
        lambda dim: None if dim.is_batch else (dim.size, dim.dim),
    ]
    dims = dims_of(call)
    groups = dict.fromkeys(tuple(group) for key in keys for group in _grouped(dims, key))
    singles = [(dim,) for dim in dims if (dim,) not in groups]
    return [*groups, *singles[:_MOST_SINGLES]]


def coupled(
    waiting: Sequence[tuple[Dim, ...]], numbers: Sequence[tuple[Dim, ...]], accepted: Iterable[Axis]
) -> list[Axis]:
    """Axes of several groups, one of which is `waiting`, since it cannot change alone.

    Either all that wait at one position, such as the heights of the levels of a pyramid, or two groups: the other one
    is waiting too, or an integer among the arguments, or `accepted` as a function of a third one.
    """
    functions = [_largest(axis.dims) for axis in accepted if len({dim.size for dim in axis.dims}) > 1]
    levels = _grouped(dict.fromkeys(itertools.chain(*waiting)), lambda dim: dim.dim)
    axes = [Axis(tuple(dims)) for dims in levels if len({dim.size for dim in dims if dim.size > 0}) > 1]
    pairs = [
        *((left, right) for place, right in enumerate(waiting) for left in waiting[:place]),
        *itertools.product(waiting, numbers),
        *itertools.product([*waiting, *numbers], functions),
    ]
    groups = {frozenset(group) for group in waiting}
    for left, right in pairs:
        dims = (*left, *right)
        if min(dim.size for dim in dims) == 0 or len(set(dims)) < len(dims) or frozenset(dims) in groups:
            continue
        axes += [Axis(dims), *([Axis(dims, scaled=False)] if left[0].size != right[0].size else [])]
        squares = _squares(dims)
        axes += [Axis((*dims, *squares))] if 0 < len(squares) < len(dims) else []
    return list(dict.fromkeys(axes))[:_MOST_COUPLED]


def _largest(dims: Sequence[Dim]) -> tuple[Dim, ...]:
    return tuple(dim for dim in dims if dim.size == max(other.size for other in dims))


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
    leaves, structure = pytree.tree_flatten((call.args, call.kwargs))
    others, other_structure = pytree.tree_flatten((other.args, other.kwargs))
    if structure != other_structure:
        return False
    pairs = zip(leaves, others, strict=True)
    return all(isinstance(own, Tensor) or own is new or own == new for own, new in pairs) and not any(
        changed_dims(call, other)
    )


def shapes_at(call: Call, sizes: Mapping[Dim, int]) -> tuple[tuple[int, ...], ...]:
    """The shapes of the tensors of a call, and its integers, if some dimensions have other sizes."""
    integers = [leaf for leaf in pytree.tree_leaves((call.args, call.kwargs)) if type(leaf) is int]
    shapes = [*(list(tensor.shape) for tensor in call.tensors()), *([number] for number in integers)]
    for dim, size in sizes.items():
        shapes[dim.place][dim.dim] = size
    return tuple(map(tuple, shapes))


def elements(call: Call, sizes: Mapping[Dim, int] | None = None) -> int:
    """The number of elements of the largest tensor of a call, if some dimensions have other sizes."""
    return max(math.prod(shape) for shape in shapes_at(call, sizes or {})[: len(call.tensors())])


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


def _grouped(dims: Iterable[Dim], key: Callable[[Dim], object]) -> list[list[Dim]]:
    """Dimensions with an equal key; none with the key None."""
    found: dict[object, list[Dim]] = {}
    for dim in dims:
        if key(dim) is not None:
            found.setdefault(key(dim), []).append(dim)
    return list(found.values())
