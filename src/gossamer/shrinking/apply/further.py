"""Calls at further sizes, where a constant, a branch or a rounding shows that is the same at the first two sizes.

At two sizes `x.shape[1] % 2` may be the same, `min(x.shape[1], 64)` is the length itself, and the height is the width.
Each of these calls changes all axes of the inputs (`dims`), each to another number:

    rounding       1, 2, 3 and odd numbers, some less and some more than the example's, and four times as many
    relations      all axes at one number
    comparisons    on the other side of the numbers that the forward compares its sizes with, or divides them by

Where the model refuses such a call, each axis is changed alone. Only small inputs become larger.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import nn

from gossamer.example import Call
from gossamer.shrinking.apply.dims import Axis, Dim, elements, parts_of, shapes_at, sizes_at
from gossamer.shrinking.apply.other_sizes import OtherSizes
from gossamer.shrinking.apply.probes import CHEAP, IndexRanges, Probe, attempt, is_cheap, resized
from gossamer.shrinking.trace import compared_sizes

__all__ = ["at_further_sizes"]

_MOST_AXES = 6
_MOST_COMPARISONS = 6
_SMALL, _GROWTH = 2**10, 64
"""A call may have as many elements, or this multiple of the example's; attention takes their square."""
_STRIDES = 32
"""Of a multiple of this, networks with strides mostly accept a half, which is the cheapest other size."""
_MULTIPLE, _SHARE = 8, 0.5
"""All of these calls together have this multiple of the elements of the example, or this share if it is not cheap."""
_FEWEST, _WEIGHTS = 2, 10**8
"""There are a few of these calls, and more as long as they together read this many parameters: each reads all."""


def at_further_sizes(model: nn.Module, call: Call, other: OtherSizes, ranges: IndexRanges) -> list[Probe]:
    """Random calls at further sizes, as far as the model accepts them."""
    generator = torch.Generator().manual_seed(3)
    axes = _independent(model, call, other, ranges)
    comparisons = compared_sizes(model, call) if is_cheap(call) else []
    most = min(CHEAP, max(_SMALL, _GROWTH * elements(call)))
    budget = max(CHEAP, _MULTIPLE * elements(call)) if is_cheap(call) else _SHARE * elements(call)
    most_calls = max(_FEWEST, _WEIGHTS // (1 + sum(parameter.numel() for parameter in model.parameters())))
    seen = {shapes_at(call, {}), shapes_at(other.call, {})}
    found: list[Probe] = []

    def examine(sizes: Mapping[Dim, int]) -> bool:
        """Add the call at these sizes, if the model accepts it; false only if it is refused."""
        nonlocal budget
        size, shapes = elements(call, sizes), shapes_at(call, sizes)
        if size > min(most, budget) or len(found) >= most_calls:
            return False
        if shapes in seen:
            return True
        seen.add(shapes)
        budget -= size
        probe = attempt(model, resized(call, generator, ranges, sizes))
        found.extend([] if probe is None else [probe])
        return probe is not None

    for numbers in [*_numbers(axes, grows=is_cheap(call)), *_beyond(axes, comparisons)]:
        if not examine(sizes_at(numbers)):
            for axis, number in numbers.items():
                examine(sizes_at({axis: number}))
    return found


def _independent(model: nn.Module, call: Call, other: OtherSizes, ranges: IndexRanges) -> list[Axis]:
    """The axes; one of several dimensions of one size is taken apart as far as the model accepts that."""
    generator = torch.Generator().manual_seed(4)
    found: list[Axis] = []
    for axis, number in other.axes.items():
        free: list[Dim] = []
        for part in parts_of(axis.dims) if len({dim.size for dim in axis.dims}) == 1 else []:
            if set(free).isdisjoint(part):
                sizes = [number] if axis.number % _STRIDES else [axis.number // 2, number]
                calls = (resized(call, generator, ranges, dict.fromkeys(part, size)) for size in dict.fromkeys(sizes))
                if any(attempt(model, candidate) is not None for candidate in calls):
                    found.append(Axis(tuple(part)))
                    free += part
        rest = tuple(dim for dim in axis.dims if dim not in free)
        found += [Axis(rest, axis.scaled)] if rest else []
    return found[:_MOST_AXES]


def _numbers(axes: Sequence[Axis], *, grows: bool) -> Iterator[dict[Axis, int]]:
    """Numbers for all axes, which differ from axis to axis but at last are all the same."""
    tried = [_larger_and_smaller(axis.number) if grows else _smaller(axis.number) for axis in axes]
    for turn in range(max(map(len, tried), default=0)):
        yield {axis: own[(turn + place) % len(own)] for place, (axis, own) in enumerate(zip(axes, tried, strict=True))}
    if grows:
        yield dict.fromkeys(axes, 3)


def _larger_and_smaller(number: int) -> list[int]:
    numbers = (1, 3, 4 * max(number, 4) + 1, 2, number + 2, 7, 2 * number + 1, number - 1)
    return [n for n in dict.fromkeys(numbers) if n > 0]


def _smaller(number: int) -> list[int]:
    numbers = (number // 2 + 1, number // 3, 3 * number // 4, number // 4 + 1)
    return [n for n in dict.fromkeys(numbers) if 0 < n < number] or [number]


def _beyond(axes: Sequence[Axis], comparisons: Sequence[tuple[float, float]]) -> Iterator[dict[Axis, int]]:
    """Numbers at which a size, that follows an axis about proportionally, reaches and passes what it is compared with.

    Whether a size follows the batch or the other axes is not known.
    """
    ratios = list(dict.fromkeys(compared / size for size, compared in comparisons if size and compared != size))
    for ratio in ratios[:_MOST_COMPARISONS]:
        for beyond in (0, 1):
            for own in ([a for a in axes if a.is_batch], [a for a in axes if not a.is_batch]):
                numbers = {axis: _passed(axis.number * ratio, beyond, up=ratio > 1) for axis in own}
                if numbers and min(numbers.values()) > 0:
                    yield numbers


def _passed(number: float, beyond: int, *, up: bool) -> int:
    return math.ceil(number) + beyond if up else math.floor(number) - beyond
