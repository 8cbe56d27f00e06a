"""Size attributes of modules: which they are, and which changes a file may request."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import nn

from gossamer.errors import GossamerError
from gossamer.store.layer_checks import Shape, Size, is_torch_layer, size_attributes
from gossamer.store.manifest import ModuleRecord
from gossamer.store.written_sizes import WrittenSizes

__all__ = ["SizeChange", "changed_sizes", "extent", "largest_size", "public_sizes", "size_changes", "within"]

# Sizes up to this one are never absurd, however small the network.
_ALWAYS_SANE = 2**16


@dataclass(frozen=True)
class SizeChange:
    """An attribute that gets another value."""

    module: nn.Module
    name: str
    value: Size

    def apply(self) -> None:
        """Set the attribute, past any property or `__setattr__`: only the number changes, no code runs."""
        vars(self.module)[self.name] = self.value


def public_sizes(module: nn.Module) -> dict[str, Size]:
    """The public attributes of `module` itself that are a whole number or a tuple of them; truth values are neither."""
    return {name: value for name, value in vars(module).items() if not name.startswith("_") and _is_size(value)}


def extent(shape: Shape) -> int:
    """The number of elements if no dimension were empty: what a shape may lead others to allocate."""
    return math.prod(max(size, 1) for size in shape)


def largest_size(shapes: Iterable[Shape]) -> int:
    """The largest number that can be a size in a network with tensors of these `shapes`.

    A file that claims a size must bring the tensors that go with it, so it cannot make a network huge for free.
    """
    return max(_ALWAYS_SANE, max(map(extent, shapes), default=0))


def within(size: Size, limit: int) -> bool:
    """Whether no number of `size` lies beyond `limit`, on either side of zero."""
    return all(abs(number) <= limit for number in _numbers(size))


def changed_sizes(present: Mapping[str, Shape], saved: Mapping[str, Shape]) -> frozenset[tuple[int, int]]:
    """The dimensions of the network's tensors that differ in the file: sizes in the model and in the file."""
    return frozenset(
        (old, new)
        for name in present.keys() & saved.keys()
        if len(present[name]) == len(saved[name])
        for old, new in zip(present[name], saved[name], strict=True)
        if old and old != new
    )


def size_changes(
    path: str,
    module: nn.Module,
    record: ModuleRecord,
    limit: int,
    changed: frozenset[tuple[int, int]],
    written: WrittenSizes,
) -> list[SizeChange]:
    """What has to change in `module` to have the sizes of `record`; an error for what a smaller network cannot ask.

    An attribute of a class of the user's own may be a width, a number of heads or anything else. It may change if the
    code of the class reads it as a size, and then only as some dimension of the tensors does.
    """
    changes = []
    own = public_sizes(module)
    changeable = size_attributes(module)
    for name, wanted in record.sizes.items():
        where = f"{name!r} of the module {path!r} ({type(module).__name__})"
        present = own.get(name)
        if present is None or len(_numbers(present)) != len(_numbers(wanted)) or _kind(present) is not _kind(wanted):
            raise GossamerError(
                f"{where} is {_said(wanted)} in the file and {vars(module).get(name)!r:.80} in the model. "
                "Make the model with the settings of the saved one, with every size set in its constructor."
            )
        if present == wanted:
            continue
        follows = name in changeable
        if not is_torch_layer(module):  # whose sizes are not checked against its tensors afterwards
            follows = _follows(wanted, present, changed) and (follows or written.may_include(name))
        if not follows:
            raise GossamerError(
                f"{where} is {_said(wanted)} in the file and {present} in the model, and is not a size that shrinking "
                "changes. Make the model with the settings of the saved one."
            )
        if not _is_sane(wanted, present, limit):
            raise GossamerError(
                f"{where} is {_said(wanted)} in the file, which is no size between 0 and {limit}, the largest that its "
                "tensors allow. The file is damaged or hostile: get it from someone you trust."
            )
        changes.append(
            SizeChange(module, name, torch.Size(_numbers(wanted)) if type(present) is torch.Size else wanted)
        )
    return changes


def _is_size(value: object) -> bool:
    # Exact types: True is an int too, and a named tuple could not be made again from its numbers.
    if type(value) in (tuple, torch.Size):
        return all(type(entry) is int for entry in value)  # type: ignore[attr-defined]
    return type(value) is int


def _is_sane(wanted: Size, present: Size, limit: int) -> bool:
    # A number that stays as it is may be anything: -1 in a view's shape, say.
    pairs = zip(_numbers(wanted), _numbers(present), strict=True)
    return all(new == old or 0 <= new <= limit for new, old in pairs)


def _follows(wanted: Size, present: Size, changed: frozenset[tuple[int, int]]) -> bool:
    """Whether each number stays, or changes by the factor of a dimension, or is a part of it before and after."""

    def follows(new: int, old: int) -> bool:
        if new == old or new <= 0 or old <= 0:
            return new == old
        return any(new * before == old * after or (before % old == 0 == after % new) for before, after in changed)

    return all(map(follows, _numbers(wanted), _numbers(present)))


def _numbers(size: Size) -> tuple[int, ...]:
    return size if isinstance(size, tuple) else (size,)


def _kind(size: Size) -> type:
    return tuple if isinstance(size, tuple) else int


def _said(size: Size) -> str:
    return f"{size!r:.80}"
