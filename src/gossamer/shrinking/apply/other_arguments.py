"""Calls whose arguments have other numbers, flags, or lists of another length than those of the example.

A forward may compute with a number, choose a layer by it or stop after so many of them, and sum over as many tensors as
there are. Numbers that are changed together may be refused because of one of them; then each is changed alone.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from gossamer.example import Call
from gossamer.shrinking.apply.other_sizes import OtherSizes
from gossamer.shrinking.apply.probes import IndexRanges, Probe, attempt, resized

__all__ = ["with_other_lengths", "with_other_numbers"]

_MOST = 4
"""So many numbers, flags and lists are changed alone."""

_CHANGES: tuple[Callable[[Any], Any], ...] = (
    lambda n: n + 1 if type(n) is int else 1.5 * n + 0.25,
    lambda n: n - 1 if type(n) is int else n,
    lambda n: n // 2 if type(n) is int else n,
    lambda n: 0 if type(n) is int else n,
)


def with_other_numbers(model: nn.Module, example: Probe, other: OtherSizes | None, ranges: IndexRanges) -> list[Probe]:
    """Random calls in which arguments that are numbers or flags have other values, as far as the model accepts them.

    One with outputs of other widths is left out: the argument may ask for hidden units. A size that is another one in
    the call of `other` sizes is no width.
    """
    leaves, structure = pytree.tree_flatten((example.call.args, example.call.kwargs))
    numbers = [place for place, leaf in enumerate(leaves) if type(leaf) in (int, float)]
    flags = [place for place, leaf in enumerate(leaves) if type(leaf) is bool][:_MOST]
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
        probes += changed(numbers, change) or [p for place in numbers[:_MOST] for p in changed([place], change)]
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
        alone = keys[:_MOST] if len(keys) > 1 else []
        probes += changed(keys, longer) or [probe for key in alone for probe in changed([key], longer)]
    return probes


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
