"""A layer of constant weights: linear, or a convolution of one or two dimensions, ordinary or transposed.

    y[o] = after(pool(before(bias[o] + sum of weight[o, c, i, j] x[c, position])))

Zero weights are neither stored nor multiplied. Activations and a pooling over whole windows are applied while the sums
are in registers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor
from torch.nn import functional

from gossamer.inference.kernel import Array, Kernel
from gossamer.inference.layout import NO_BORDER, Border
from gossamer.inference.operations.convolution.direct import emit_direct
from gossamer.inference.operations.convolution.output_vectors import ColumnBlocks, best_blocks, emit_output_vectors
from gossamer.inference.operations.convolution.phases import (
    Phase,
    border_of,
    ordinary_direction,
    phases,
    transposed_directions,
)
from gossamer.inference.operations.convolution.positions import emit_over_positions
from gossamer.inference.operations.functions import Function
from gossamer.inference.program import Operation, Shape, Value

__all__ = ["Convolution", "Pooling"]


class Pooling(NamedTuple):
    """The "max" or "mean" of windows that do not overlap."""

    kind: str
    rows: int
    columns: int


@dataclass(frozen=True, eq=False)
class Convolution(Operation):
    """The layer.

    Attributes:
        x: [1, channels, rows, columns] or [1, channels, columns]; of a linear layer [positions, channels].
        weight: [outputs, channels / groups, rows, columns], also where it is transposed.
        bias: [outputs].
        padding: Before the rows, behind them, before the columns, behind them; of a transposed convolution what is cut
            off there.
        transposed: Whether the input is spread by the stride, instead of the output.
        leading: The shape of the result of a linear layer without its last dimension; None for a convolution.
        before: Functions applied before the pooling.
        after: Functions applied after it.
    """

    x: Value
    weight: Tensor
    bias: Tensor
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    transposed: bool = False
    leading: Shape | None = None
    before: tuple[Function, ...] = ()
    pooling: Pooling | None = None
    after: tuple[Function, ...] = ()

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The tensor."""
        return (self.x,)

    @property
    def plane(self) -> tuple[int, int]:
        """Rows and columns of the input; the positions of a linear layer are columns."""
        if self.is_linear:
            return 1, self.x.shape[0]
        return (self.x.shape[2], self.x.shape[3]) if len(self.x.shape) == 4 else (1, self.x.shape[2])

    @property
    def is_linear(self) -> bool:
        """Whether the channels are the last dimension."""
        return self.leading is not None

    @property
    def accepts_border(self) -> bool:
        """The positions of a linear layer are one dimension; zeros between them would make it several."""
        return not self.is_linear

    @property
    def unpooled(self) -> tuple[int, int]:
        """Rows and columns before the pooling."""
        sizes = []
        for axis, (size, kernel) in enumerate(zip(self.plane, self.weight.shape[2:], strict=True)):
            padding = self.padding[2 * axis] + self.padding[2 * axis + 1]
            reach = self.dilation[axis] * (kernel - 1) + 1
            if self.transposed:
                sizes.append((size - 1) * self.stride[axis] - padding + reach)
            else:
                sizes.append((size + padding - reach) // self.stride[axis] + 1)
        return sizes[0], sizes[1]

    @property
    def shape(self) -> Shape:
        """[1, outputs, rows, columns] or [1, outputs, columns], or [..., outputs]."""
        outputs, (rows, columns) = self.weight.shape[0], self.unpooled
        if self.leading is not None:
            return (*self.leading, outputs)
        if self.pooling is not None:
            rows, columns = rows // self.pooling.rows, columns // self.pooling.columns
        return (1, outputs, rows, columns) if len(self.x.shape) == 4 else (1, outputs, columns)

    def reference(self, *tensors: Tensor) -> Tensor:
        """PyTorch's layers and functions."""
        (x,) = tensors
        x = x.t()[None, :, None] if self.is_linear else x.reshape(1, x.shape[1], *self.plane)
        top, bottom, left, right = self.padding
        if self.transposed:
            per_group = self.weight.reshape(self.groups, -1, *self.weight.shape[1:]).transpose(1, 2).flatten(0, 1)
            y = functional.conv_transpose2d(x, per_group, None, self.stride, groups=self.groups, dilation=self.dilation)
            y = functional.pad(y, (-left, -right, -top, -bottom)) + self.bias[:, None, None]
        else:
            padded = functional.pad(x, (left, right, top, bottom))
            y = functional.conv2d(padded, self.weight, self.bias, self.stride, 0, self.dilation, self.groups)
        for function in self.before:
            y = function.apply(y)
        if self.pooling is not None:
            pool = functional.max_pool2d if self.pooling.kind == "max" else functional.avg_pool2d
            y = pool(y, (self.pooling.rows, self.pooling.columns))
        for function in self.after:
            y = function.apply(y)
        return y[0, :, 0].t().reshape(self.shape) if self.is_linear else y.reshape(self.shape)

    def phases(self) -> list[Phase]:
        """The phases of the output plane, without the positions that the pooling leaves out."""
        pool = (1, 1) if self.pooling is None else (self.pooling.rows, self.pooling.columns)
        found = []
        for axis, outputs in enumerate(self.unpooled):
            kernel, stride, dilation = self.weight.shape[2 + axis], self.stride[axis], self.dilation[axis]
            padding = self.padding[2 * axis]
            if self.transposed:
                found.append(transposed_directions(outputs, kernel, stride, padding, dilation))
            else:
                whole = outputs - outputs % pool[axis]
                found.append([ordinary_direction(whole, kernel, stride, padding, dilation)])
        return phases(*found)

    def border(self) -> Border:
        """The zeros that are read around the input."""
        return border_of(self.phases(), *self.plane)

    def borders(self) -> Sequence[tuple[Value, Border]]:
        """Padded convolutions read zeros around their input."""
        border = self.border()
        return [] if border == NO_BORDER else [(self.x, border)]

    def emit(self, kernel: Kernel) -> None:
        """One sample in vectors of positions, or of outputs, if that pays; everything else element by element."""
        smallest = min(kernel.target.vectors, default=0)
        if smallest and math.prod(self.unpooled) >= smallest and not self.transposed:
            emit_over_positions(self, kernel)
        elif smallest and self.is_linear and self.x.shape[0] == 1 and (blocks := self._column_blocks(kernel)):
            emit_output_vectors(self, kernel, blocks)
        else:
            emit_direct(self, kernel)

    def _column_blocks(self, kernel: Kernel) -> ColumnBlocks | None:
        return best_blocks(self.weight.numpy()[:, :, 0, 0], kernel.target)

    def taps_of(self, phase: Phase) -> Array:
        """The weights of a phase, [outputs, channels / groups, rows, columns]."""
        array: Array = self.weight.numpy()[:, :, list(phase.rows.taps)][:, :, :, list(phase.columns.taps)]
        return array

    def planes(self, strides: Sequence[int]) -> tuple[int, int, int]:
        """The strides of a tensor from channel to channel, row to row, column to column."""
        if self.is_linear:
            *positions, features = strides
            return features, 0, positions[-1] if positions else 0
        return (strides[1], strides[2], strides[3]) if len(strides) == 4 else (strides[1], 0, strides[2])

    def describe(self) -> str:
        """Kind, sizes, and how much of it is left."""
        outputs, inputs, *taps = self.weight.shape
        kept = int(self.weight.count_nonzero())
        kind = "transposed convolution" if self.transposed else "convolution"
        what = "linear layer" if self.is_linear else f"{taps[0]}x{taps[1]} {kind}"
        names = [function.name for function in (*self.before, *self.after)]
        if self.pooling is not None:
            names.insert(len(self.before), f"{self.pooling.kind} pooling {self.pooling.rows}x{self.pooling.columns}")
        rest = f", then {', '.join(names)}" if names else ""
        sizes = f"{inputs * self.groups} -> {outputs}"
        return f"{what} {sizes}; {kept} of {self.weight.numel()} weights are not zero{rest}"
