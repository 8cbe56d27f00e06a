"""A choice between two tensors by a mask."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.inference.kernel import Kernel
from gossamer.inference.operations.pointwise import as_float, broadcast_strides
from gossamer.inference.program import Operation, Shape, Value, broadcast
from gossamer.inference.registry import Builder, lowers
from gossamer.inference.source import nest

__all__ = ["Where", "chosen"]

aten = torch.ops.aten


@dataclass(frozen=True, eq=False)
class Where(Operation):
    """Where the mask is not zero, the first tensor; elsewhere the second. Constants are float32."""

    mask: Value
    first: Value
    second: Value

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The mask, and both tensors."""
        return (self.mask, self.first, self.second)

    @property
    def shape(self) -> Shape:
        """All three broadcast together."""
        return broadcast(self.mask.shape, self.first.shape, self.second.shape)

    def reference(self, *tensors: Tensor) -> Tensor:
        """PyTorch's own."""
        mask, first, second = tensors
        return torch.where(mask != 0, first, second)

    def emit(self, kernel: Kernel) -> None:
        """One loop nest; a constant mask is a plain condition."""
        operands = [*kernel.inputs, kernel.output]
        with nest(kernel.code, self.shape, [broadcast_strides(x, self.shape) for x in operands]) as indices:
            mask, *reads = (f"{x.name}[{index}]" for x, index in zip(operands, indices, strict=True))
            pair = [
                kernel.target.splat(read) if x.is_constant else read
                for x, read in zip(kernel.inputs[1:], reads, strict=False)
            ]
            choice = f"{mask} != 0.0f ? {pair[0]} : {pair[1]}"
            if not kernel.inputs[0].is_constant:
                choice = f"{kernel.helper('where')}({mask}, {pair[0]}, {pair[1]})"
            kernel.code.add(f"{reads[-1]} = {choice};")


def chosen(build: Builder, mask: Value, first: Value | float, second: Value | float) -> Value:
    """`first` where the mask is true, `second` elsewhere."""
    return build.add(Where(*(as_float(own) for own in (mask, first, second))))


@lowers(aten.where, integers=True)
def _where(build: Builder, condition: Value, x: Value | float, other: Value | float) -> Value:
    return chosen(build, condition, x, other)


@lowers(aten.masked_fill, integers=True)
def _masked_fill(build: Builder, x: Value, mask: Value, value: Value | float) -> Value:
    return chosen(build, mask, value, x)
