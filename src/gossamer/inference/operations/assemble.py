"""A tensor put together from others: copies, concatenation, padding with a constant, repetition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from gossamer.inference.kernel import Kernel
from gossamer.inference.program import Operation, Shape, Value, viewed
from gossamer.inference.registry import Builder, Refusal, lowers
from gossamer.inference.source import literal, nest

__all__ = ["Assemble", "Piece", "concatenated", "copied"]

aten = torch.ops.aten


class Piece(NamedTuple):
    """A tensor, and the position of its first element in the result."""

    value: Value
    start: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Assemble(Operation):
    """The pieces, each at its position; `fill` where there is none. The others may lie over a whole first one."""

    pieces: tuple[Piece, ...]
    size: Shape
    fill: float = 0.0

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The pieces."""
        return tuple(piece.value for piece in self.pieces)

    @property
    def shape(self) -> Shape:
        """As given."""
        return self.size

    def reference(self, *tensors: Tensor) -> Tensor:
        """Slices of a filled tensor."""
        result = torch.full(self.size, self.fill)
        for tensor, piece in zip(tensors, self.pieces, strict=True):
            slices = tuple(slice(at, at + size) for at, size in zip(piece.start, tensor.shape, strict=True))
            result[slices] = tensor
        return result

    def emit(self, kernel: Kernel) -> None:
        """A loop nest for each piece."""
        code, y = kernel.code, kernel.output
        if sum(math.prod(piece.value.shape) for piece in self.pieces) < math.prod(self.size):
            with nest(code, self.size, [y.strides]) as (index,):
                code.add(f"y[{index}] = {kernel.target.splat(literal(self.fill))};")
        for x, piece in zip(kernel.inputs, self.pieces, strict=True):
            offset = sum(at * stride for at, stride in zip(piece.start, y.strides, strict=True))
            with nest(code, x.shape, [x.strides, y.strides]) as (source, target):
                read = f"{x.name}[{source}]"
                read = kernel.target.splat(read) if x.is_constant else read
                code.add(f"y[{target}{f' + {offset}' if offset else ''}] = {read};")

    def describe(self) -> str:
        """How many pieces."""
        return "copy" if len(self.pieces) == 1 else f"{len(self.pieces)} tensors as one"


def copied(value: Value) -> Assemble:
    """A contiguous copy."""
    return Assemble((Piece(value, (0,) * len(value.shape)),), value.shape)


def concatenated(values: Sequence[Value], dimension: int) -> Assemble:
    """The values one behind the other."""
    first = values[0].shape
    dimension %= len(first)
    pieces, at = [], 0
    for value in values:
        pieces.append(Piece(value, tuple(at if own == dimension else 0 for own in range(len(first)))))
        at += value.shape[dimension]
    return Assemble(tuple(pieces), (*first[:dimension], at, *first[dimension + 1 :]))


@lowers(aten.cat, aten.concat)
def _cat(build: Builder, tensors: Sequence[Value], dim: int = 0) -> Value:
    filled = [value for value in tensors if value.shape != (0,)]  # PyTorch skips these
    return build.add(concatenated(filled, dim))


@lowers(aten.stack)
def _stack(build: Builder, tensors: Sequence[Value], dim: int = 0) -> Value:
    return build.add(concatenated([viewed(value, lambda x: x.unsqueeze(dim)) for value in tensors], dim))


@lowers(aten.slice_scatter)
def _slice_scatter(
    build: Builder, x: Value, src: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Value:
    """What writing to a slice becomes."""
    if step != 1:
        raise Refusal(f"its step is {step}")
    first = slice(start, end).indices(x.shape[dim])[0]
    begin = (0,) * len(x.shape)
    at = (*begin[: dim % len(begin)], first, *begin[dim % len(begin) + 1 :])
    return build.add(Assemble((Piece(x, begin), Piece(src, at)), x.shape))


@lowers(aten.select_scatter)
def _select_scatter(build: Builder, x: Value, src: Value, dim: int, index: int) -> Value:
    dim, index = dim % len(x.shape), index % x.shape[dim]
    return _slice_scatter(build, x, viewed(src, lambda tensor: tensor.unsqueeze(dim)), dim, index)


@lowers(aten.constant_pad_nd)
def _constant_pad(build: Builder, x: Value, pad: Sequence[int], value: float = 0.0) -> Value:
    if any(amount < 0 for amount in pad):
        raise Refusal(f"its padding {list(pad)} is negative")
    before = [0] * len(x.shape)
    after = [0] * len(x.shape)
    for number in range(len(pad) // 2):
        before[-1 - number], after[-1 - number] = pad[2 * number], pad[2 * number + 1]
    size = tuple(low + own + high for low, own, high in zip(before, x.shape, after, strict=True))
    return build.add(Assemble((Piece(x, tuple(before)),), size, float(value)))


@lowers(aten.pad)
def _pad(build: Builder, x: Value, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Value:
    if mode != "constant":
        raise Refusal(f"its mode is {mode!r}")
    return _constant_pad(build, x, pad, value or 0.0)


@lowers(aten.repeat)
def _repeat(build: Builder, x: Value, repeats: Sequence[int]) -> Value:
    own = (1,) * (len(repeats) - len(x.shape)) + x.shape
    # [a, b] -> [1, a, 1, b] -> [r, a, s, b] -> [r a, s b]
    apart = tuple(size for pair in zip((1,) * len(own), own, strict=True) for size in pair)
    spread = tuple(size for pair in zip(repeats, own, strict=True) for size in pair)
    result = build.add(copied(viewed(x, lambda tensor: tensor.view(apart).expand(spread))))
    return build.reshaped(result, tuple(times * size for times, size in zip(repeats, own, strict=True)))
