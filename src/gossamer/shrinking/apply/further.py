"""Calls at further sizes, where a constant, a branch or a rounding shows that is the same at the first two sizes.

At two sizes `x.shape[1] % 2` may be the same, `min(x.shape[1], 64)` is the length itself, and the height is the width.
Each of these calls changes all axes of the inputs (`dims`), each to another number:

    rounding       1, 2, 3 and odd numbers, some less and some more than the example's, and four times as many
    relations      all axes at one number
    comparisons    on the other side of the numbers that the forward compares its sizes with, or divides them by

Where the model refuses such a call, each axis is changed alone. Only small inputs become larger. Then come calls with
other arguments: numbers, flags and lists of another length.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from gossamer.example import Call
from gossamer.shrinking.apply.dims import Axis, Dim, elements, parts_of, shapes_at, sizes_at
from gossamer.shrinking.apply.other_sizes import OtherSizes
from gossamer.shrinking.apply.probes import CHEAP, IndexRanges, Probe, attempt, is_cheap, resized
from gossamer.shrinking.trace import compared_sizes

__all__ = ["at_further_sizes", "with_other_lengths", "with_other_numbers"]

_MOST_AXES = 12
_MOST_COMPARISONS = 6
_SMALL, _GROWTH = 2**10, 64
"""A call may have as many elements, or this multiple of the example's; attention takes their square."""
_STRIDES = 32
"""Of a multiple of this, networks with strides mostly accept a half, which is the cheapest other size."""
_MULTIPLE, _SHARE = 8, 0.5
"""All of these calls together have this multiple of the elements of the example, or this share if it is not cheap."""
_FEWEST, _WEIGHTS = 2, 10**8
"""There are a few of these calls, and more as long as they together read this many parameters: each reads all."""
_MOST_ALONE = 4
"""So many numbers, flags and lists among the arguments are changed alone."""
_CHANGES: tuple[Callable[[Any], Any], ...] = (
    lambda n: n + 1 if type(n) is int else 1.5 * n + 0.25,
    lambda n: n - 1 if type(n) is int else n,
    lambda n: n // 2 if type(n) is int else n,
    lambda n: 0 if type(n) is int else n,
)
"""Of a number among the arguments. A forward may choose a layer by it, or stop after so many of them."""


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


def with_other_numbers(model: nn.Module, example: Probe, other: OtherSizes | None, ranges: IndexRanges) -> list[Probe]:
    """Random calls in which arguments that are numbers or flags have other values, as far as the model accepts them.

    One with outputs of other widths is left out: the argument may ask for hidden units. A size that is another one in
    the call of `other` sizes is no width.
    """
    leaves, structure = pytree.tree_flatten((example.call.args, example.call.kwargs))
    numbers = [place for place, leaf in enumerate(leaves) if type(leaf) in (int, float)]
    flags = [place for place, leaf in enumerate(leaves) if type(leaf) is bool][:_MOST_ALONE]
    generator = torch.Generator().manual_seed(5)
    seen = [leaves]

    def changed(places: Sequence[int], change: Callable[[Any], Any]) -> list[Probe]:
        new = [change(leaf) if place in places else leaf for place, leaf in enumerate(leaves)]
        if new in seen:
            return []
        seen.append(new)
        probe = attempt(model, resized(Call(*pytree.tree_unflatten(new, structure)), generator, ranges, {}))
        return [] if probe is None else [probe]

    probes = [probe for place in flags for probe in changed([place], operator.not_)]
    for change in _CHANGES if numbers else ():
        probes += changed(numbers, change) or [p for place in numbers[:_MOST_ALONE] for p in changed([place], change)]
    return [probe for probe in probes if _has_widths_of(example, probe, other)]


def with_other_lengths(model: nn.Module, call: Call, ranges: IndexRanges) -> list[Probe]:
    """Random calls with one tensor less in each list of the arguments, or one more, as far as the model accepts that.

    Lists of one length are changed together and, if that is refused, each alone.
    """
    generator = torch.Generator().manual_seed(6)
    lists = {id(found): found for found in _lists((call.args, call.kwargs), depth=0)}
    by_length: dict[int, list[int]] = {}
    for key, found in lists.items():
        by_length.setdefault(len(found), []).append(key)

    def changed(keys: Sequence[int], longer: bool) -> list[Probe]:
        other = Call(*_with_lengths((call.args, call.kwargs), frozenset(keys), longer=longer))
        probe = attempt(model, resized(other, generator, ranges, {})) if other.tensors() else None
        return [] if probe is None else [probe]

    probes: list[Probe] = []
    for keys, longer in itertools.product(by_length.values(), (False, True)):
        alone = keys[:_MOST_ALONE] if len(keys) > 1 else []
        probes += changed(keys, longer) or [probe for key in alone for probe in changed([key], longer)]
    return probes


def _independent(model: nn.Module, call: Call, other: OtherSizes, ranges: IndexRanges) -> list[Axis]:
    """The axes; one of several dimensions of one size is taken apart as far as the model accepts that."""
    generator = torch.Generator().manual_seed(4)
    found: list[Axis] = []
    for axis, number in other.axes.items():
        free: list[Dim] = []
        for part in parts_of(axis.dims) if len({dim.size for dim in axis.dims}) == 1 else []:
            if set(free).isdisjoint(part) and len(free) + len(part) < len(axis.dims):
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


def _lists(tree: Any, depth: int) -> Iterator[Any]:
    """The lists, tuples and dictionaries in the arguments that contain tensors; not the arguments themselves."""
    if type(tree) in (list, tuple, dict):
        if depth > 1 and any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(tree)):
            yield tree
        for part in tree.values() if type(tree) is dict else tree:
            yield from _lists(part, depth + 1)


def _with_lengths(tree: Any, changed: frozenset[int], *, longer: bool) -> Any:
    """The arguments without the last element of some lists, or with another one like it; no key is invented."""
    if type(tree) is dict:
        parts = {key: _with_lengths(part, changed, longer=longer) for key, part in tree.items()}
        return parts if longer or id(tree) not in changed else dict([*parts.items()][:-1])
    if type(tree) in (list, tuple):
        items = [_with_lengths(part, changed, longer=longer) for part in tree]
        return type(tree)(items if id(tree) not in changed else items + items[-1:] if longer else items[:-1])
    return tree


def _has_widths_of(example: Probe, probe: Probe, other: OtherSizes | None) -> bool:
    """Whether outputs have the shapes of those of the example, but for sizes that the inputs determine."""
    outputs = example.outputs if other is None else other.outputs
    return len(probe.outputs) == len(example.outputs) == len(outputs) and all(
        own.dim() == new.dim() == free.dim()
        and all(a == b or a != c for a, b, c in zip(own.shape, new.shape, free.shape, strict=True))
        for own, new, free in zip(example.outputs, probe.outputs, outputs, strict=True)
    )
