"""Where the tensors of a program lie: strides, zeros around them, and a plan of the workspace by lifetime."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from gossamer.inference.program import Alias, Program, Shape, Value, root

__all__ = [
    "NO_BORDER",
    "Block",
    "Border",
    "Placement",
    "choose_borders",
    "contiguous",
    "pack_blocks",
    "placement",
    "size",
]


class Border(NamedTuple):
    """Zeros around the last two dimensions (rows and columns) of a tensor, or the last one of a 3-d tensor."""

    top: int = 0
    bottom: int = 0
    left: int = 0
    right: int = 0

    def covers(self, other: Border) -> bool:
        """Whether this border is nowhere narrower."""
        return all(own >= wanted for own, wanted in zip(self, other, strict=True))

    def joined(self, other: Border) -> Border:
        """The narrowest border that covers both."""
        return Border(*map(max, self, other))


NO_BORDER = Border()


@dataclass(frozen=True)
class Placement:
    """A tensor in memory: element `i` lies at `offset + sum(i * strides)` of its block."""

    shape: Shape
    strides: tuple[int, ...]
    offset: int = 0
    border: Border = NO_BORDER


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a tensor whose elements lie behind each other."""
    return tuple(math.prod(shape[dimension + 1 :]) for dimension in range(len(shape)))


def placement(value: Value, border: Border) -> Placement:
    """Where `value` lies in the block of its root, which has this border."""
    base = root(value)
    whole = _with_border(base.shape, border)
    if not isinstance(value, Alias):
        return whole
    seen = value.view(_dataless(whole))
    return Placement(tuple(seen.shape), tuple(seen.stride()), whole.offset + int(seen.storage_offset()))


def size(value: Value, border: Border) -> int:
    """Elements of the block of a root value."""
    rows, columns = _plane(value.shape)
    planes = math.prod(value.shape) // max(rows * columns, 1)
    return planes * (rows + border.top + border.bottom) * (columns + border.left + border.right)


def choose_borders(program: Program, wanted: Iterable[tuple[Value, Border]]) -> dict[Value, Border]:
    """The border of each root: what its readers want, if its writer and every alias of it allow that."""
    borders: dict[Value, Border] = {}
    fixed = {*program.outputs, *(step.output for step in program.steps if not step.operation.accepts_border)}
    for value, border in wanted:
        if not isinstance(value, Alias) and value not in fixed:
            borders[value] = borders.get(value, NO_BORDER).joined(border)
    aliases = {value for operation, _ in program.steps for value in operation.inputs if isinstance(value, Alias)}
    for alias in aliases:
        if alias.base in borders and not _exists(alias, borders[alias.base]):
            del borders[alias.base]
    return borders


class Block(NamedTuple):
    """Elements that are in use from the first to the last of some steps."""

    elements: int
    first: int
    last: int


def pack_blocks(blocks: Mapping[object, Block], alignment: int) -> tuple[dict[object, int], int]:
    """An offset for each block, and the size of the whole; blocks in use at the same time do not overlap.

    The largest comes first, each at the lowest offset that is free while it is in use.
    """
    offsets: dict[object, int] = {}
    total = 0
    for name, block in sorted(blocks.items(), key=lambda item: -item[1].elements):
        taken = sorted(
            (offsets[other], offsets[other] + _aligned(blocks[other].elements, alignment))
            for other in offsets
            if blocks[other].first <= block.last and block.first <= blocks[other].last
        )
        start = 0
        for low, high in taken:
            if start + block.elements <= low:
                break
            start = max(start, high)
        offsets[name] = start
        total = max(total, start + block.elements)
    return offsets, _aligned(total, alignment)


def _aligned(elements: int, alignment: int) -> int:
    return -(-elements // alignment) * alignment


def _with_border(shape: Shape, border: Border) -> Placement:
    if border == NO_BORDER:
        return Placement(shape, contiguous(shape))
    rows, columns = _plane(shape)
    pitch = columns + border.left + border.right
    plane = (rows + border.top + border.bottom) * pitch
    inner = (pitch, 1) if len(shape) > 3 else (1,)
    outer = shape[: len(shape) - len(inner)]
    strides = (*(plane * step for step in contiguous(outer)), *inner)
    return Placement(shape, strides, border.top * pitch + border.left, border)


def _plane(shape: Shape) -> tuple[int, int]:
    """Rows and columns: of [1, channels, rows, columns], or one row of [1, channels, columns]."""
    return (shape[-2], shape[-1]) if len(shape) > 3 else (1, shape[-1] if shape else 1)


def _dataless(placement: Placement) -> Tensor:
    return torch.empty_strided(placement.shape, placement.strides, device="meta")


def _exists(alias: Alias, border: Border) -> bool:
    try:
        placement(alias, border)
    except RuntimeError:  # PyTorch: the view would need a copy
        return False
    return True
