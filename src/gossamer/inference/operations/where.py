"""A choice between two tensors by a constant condition: masks that do not depend on the input."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gossamer.inference.kernel import Kernel, Operand, compact
from gossamer.inference.operations.pointwise import broadcast_strides
from gossamer.inference.program import Constant, Operation, Shape, Value, broadcast
from gossamer.inference.registry import Builder, constant_of, lowers
from gossamer.inference.source import nest

__all__ = ["Where"]

aten = torch.ops.aten


@dataclass(frozen=True, eq=False)
class Where(Operation):
    """Where `condition`, the first tensor; elsewhere the second."""

    condition: Tensor
    first: Value
    second: Value

    @property
    def inputs(self) -> tuple[Value, ...]:
        """Both tensors."""
        return (self.first, self.second)

    @property
    def shape(self) -> Shape:
        """All three broadcast together."""
        return broadcast(self.condition.shape, self.first.shape, self.second.shape)

    def reference(self, *tensors: Tensor) -> Tensor:
        """PyTorch's own."""
        first, second = tensors
        return torch.where(self.condition, first, second)

    def emit(self, kernel: Kernel) -> None:
        """The condition is a constant array of zeros and ones."""
        array, strides = compact(self.condition)
        condition = Operand(
            kernel.constant(array.astype(np.uint16)), tuple(self.condition.shape), strides, is_constant=True
        )
        operands = [condition, *kernel.inputs, kernel.output]
        with nest(kernel.code, self.shape, [broadcast_strides(x, self.shape) for x in operands]) as indices:
            reads = [
                kernel.target.splat(f"{x.name}[{index}]") if x.is_constant else f"{x.name}[{index}]"
                for x, index in zip(kernel.inputs, indices[1:], strict=False)
            ]
            kernel.code.add(f"y[{indices[-1]}] = {condition.name}[{indices[0]}] ? {reads[0]} : {reads[1]};")


def _as_value(number: Value | float) -> Value:
    return number if isinstance(number, Value) else Constant((), torch.tensor(float(number)))


@lowers(aten.where)
def _where(build: Builder, condition: Value, x: Value | float, other: Value | float) -> Value:
    mask = constant_of(condition, "condition").tensor
    return build.add(Where(mask, _as_value(x), _as_value(other)))


@lowers(aten.masked_fill)
def _masked_fill(build: Builder, x: Value, mask: Value, value: Value | float) -> Value:
    return _where(build, mask, value, x)
