"""A call at another batch size, length and image size than the example's, as far as the model accepts them.

Most sizes become the double or the next number. What a model refuses then may depend on another size or on an integer
among the arguments, and is changed together with it; or it has to be a square, as the positions of a grid, or one more
than a multiple of eight, as the pixels between strides. Each attempt is a forward pass; where an early one succeeds, no
further one follows.
"""

from __future__ import annotations

import math
import traceback
from typing import NamedTuple

import torch
from torch import Tensor, nn

from gossamer.errors import GossamerError
from gossamer.example import Call
from gossamer.shrinking.apply.dims import (
    Axis,
    Dim,
    changed_dims,
    coupled,
    dims_of,
    elements,
    groups_of_dims,
    groups_of_numbers,
    sizes_at,
)
from gossamer.shrinking.apply.probes import CHEAP, IndexRanges, Probe, attempt, is_cheap, resized, run

__all__ = ["OtherSizes", "at_other_sizes", "at_size_one"]


class OtherSizes(NamedTuple):
    """A call at other sizes than those of the example, with its outputs, and the numbers that its sizes follow."""

    call: Call
    outputs: list[Tensor]
    axes: dict[Axis, int]


def at_other_sizes(model: nn.Module, call: Call, ranges: IndexRanges) -> OtherSizes | None:
    """A random call with another batch size, length and image size, as far as the model accepts them.

    Dimensions that have one size in the example are changed together: first the batch, then the other sizes. Those that
    the model refuses are changed alone, then together with others or with integers, and at last to rarer numbers.
    """
    search = _Search(model, call, ranges)
    for dims in groups_of_dims(call):
        if search.is_waiting(dims):
            search.change(dims)
    while search.change_coupled():
        pass
    for dims in groups_of_dims(call):
        if search.is_waiting(dims):
            search.change_to_rare_size(dims)
    return search.found


def at_size_one(model: nn.Module, call: Call, other: Call, ranges: IndexRanges) -> list[Probe]:
    """Random calls in which the batch, or every other dimension that may change, has the size one, if accepted.

    `other` is a call of other sizes that the model accepts. The exporter takes a symbolic size to be at least two.
    """
    generator = torch.Generator().manual_seed(2)
    free = [dim for dim in dims_of(call) if dim.dim in changed_dims(call, other)[dim.place]]
    groups = [[dim for dim in free if dim.is_batch], [dim for dim in free if not dim.is_batch]]
    ones = [resized(call, generator, ranges, dict.fromkeys(dims, 1)) for dims in groups if dims]
    probes = [attempt(model, one) for one in ones]
    return [probe for probe in probes if probe is not None]


class _Search:
    """The sizes that a model is known to accept, to which each attempt may add those along an axis."""

    def __init__(self, model: nn.Module, call: Call, ranges: IndexRanges) -> None:
        self._model, self._call, self._ranges = model, call, ranges
        self._generator = torch.Generator().manual_seed(1)
        self._large = not is_cheap(call)
        self._axes: dict[Axis, int] = {}
        self._probe: Probe | None = None
        self._refused: set[Axis] = set()
        self._flattened: set[Dim] = set()

    @property
    def found(self) -> OtherSizes | None:
        """The call at all sizes that are accepted, if there are any."""
        return None if self._probe is None else OtherSizes(self._probe.call, self._probe.outputs, self._axes)

    def is_waiting(self, dims: tuple[Dim, ...]) -> bool:
        """Whether none of these dimensions has another size yet."""
        return all(set(axis.dims).isdisjoint(dims) for axis in self._axes)

    def change(self, dims: tuple[Dim, ...]) -> None:
        """Change dimensions of one size together: to a larger one where that is cheap, else to a smaller one.

        If the input of a linear layer has another width then, the model flattens them into units: from there on only
        the next size is worth a forward pass, since the width may still be the same, and a single sample tells whether
        it is.
        """
        size, axis = dims[0].size, Axis(dims)
        others = [size + 1] if axis.is_batch else [2 * size, size + 1, size // 2]
        if not axis.is_batch and elements(self._call, dict.fromkeys(dims, 2 * size)) >= CHEAP:
            others = [size // 2, size + 1, 2 * size] if self._large else [size + size // 2, *others]
        for other in dict.fromkeys(others):
            flattens = not self._flattened.isdisjoint(dims)
            if other == 0 or (flattens and other != size + 1):
                continue
            try:
                if flattens and any(known.is_batch for known in self._axes):
                    self._refuse_other_width(axis, other)
                self._add(axis, other)
                break
            except GossamerError as error:
                change = self._flattened.update if _is_in_linear_layer(error) else self._flattened.difference_update
                change(dims)

    def change_coupled(self) -> bool:
        """Change a few groups together, some of which cannot change alone; whether there was one more axis of them."""
        waiting = [dims for dims in groups_of_dims(self._call) if self.is_waiting(dims)]
        numbers = [dims for dims in groups_of_numbers(self._call) if self.is_waiting(dims)]
        for axis in coupled(waiting, numbers, self._axes):
            if axis not in self._refused:
                number = axis.number
                smaller = self._large and axis.scaled and number > 1
                if any(self._accepts(axis, n) for n in ((number // 2,) if smaller else (number + 1, 2 * number))):
                    return True
                self._refused.add(axis)
        return False

    def change_to_rare_size(self, dims: tuple[Dim, ...]) -> None:
        """Change dimensions of one size to one of those that are rarely needed, if no layer has that many inputs.

        They are tried beside the sizes of the example, since most attempts fail, and the inputs are smaller then.
        """
        most = max(CHEAP, 2 * elements(self._call))
        sizes = _rare_sizes(dims[0].size, grows=not self._large) if self._flattened.isdisjoint(dims) else []
        for size in sizes:
            alone = dict.fromkeys(dims, size)
            if elements(self._call, alone) <= most and attempt(self._model, self._resized(alone)) is not None:
                self._accepts(Axis(dims), size)
                return

    def _accepts(self, axis: Axis, number: int) -> bool:
        try:
            self._add(axis, number)
        except GossamerError:
            return False
        return True

    def _add(self, axis: Axis, number: int) -> None:
        """Change an axis beside those that are known; raise the error of a model that refuses that."""
        axes = {**self._axes, axis: number}
        candidate = self._resized(sizes_at(axes))
        self._probe = Probe(candidate, run(self._model, candidate))
        self._axes = axes

    def _refuse_other_width(self, axis: Axis, number: int) -> None:
        """Raise the error of a single sample that fails in a linear layer; others may come from a batch of one."""
        sizes = sizes_at({**self._axes, axis: number})
        single = self._resized({dim: 1 if dim.is_batch else size for dim, size in sizes.items()})
        try:
            run(self._model, single)
        except GossamerError as error:
            if _is_in_linear_layer(error):
                raise

    def _resized(self, sizes: dict[Dim, int]) -> Call:
        return resized(self._call, self._generator, self._ranges, sizes)


def _rare_sizes(size: int, *, grows: bool) -> list[int]:
    """The nearest squares, squares and one, and sizes that leave the same rest when divided by a power of two."""
    root, odd_root = math.isqrt(size), math.isqrt(max(size - 1, 0))
    larger = [(root + 1) ** 2, (odd_root + 1) ** 2 + 1, size + 4, size + 8, 2 * size - 1, 2 * size, 4 * size]
    smaller = [(root - 1) ** 2, (odd_root - 1) ** 2 + 1, size - 4, size - 8, (size + 1) // 2, size // 2, size // 4]
    return [n for n in dict.fromkeys(larger if grows else smaller) if n > 0 and n != size]


def _is_in_linear_layer(error: GossamerError) -> bool:
    """Whether a forward failed in that of an `nn.Linear`."""
    cause = error.__cause__
    frames = [] if cause is None else traceback.walk_tb(cause.__traceback__)
    return any(frame.f_code is nn.Linear.forward.__code__ for frame, _ in frames)
