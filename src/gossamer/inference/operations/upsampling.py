"""Planes of another size: each output position is a mixture of at most two input positions in each direction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gossamer.inference.kernel import Kernel
from gossamer.inference.operations.convolution.sparse_weight import smallest_unsigned
from gossamer.inference.program import Operation, Shape, Value, viewed
from gossamer.inference.registry import Builder, lowers
from gossamer.inference.source import nest

__all__ = ["Upsample"]

aten = torch.ops.aten


@dataclass(frozen=True, eq=False)
class Upsample(Operation):
    """The last two dimensions at another size, by the nearest position or by linear interpolation.

    `scales` are the input positions for one output position; PyTorch derives them from the sizes or from what the model
    asked for, and the two differ when a size was rounded.
    """

    x: Value
    size: tuple[int, int]
    scales: tuple[float, float]
    linear: bool = False
    align_corners: bool = False

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The tensor."""
        return (self.x,)

    @property
    def shape(self) -> Shape:
        """The new size."""
        return (*self.x.shape[:-2], *self.size)

    def reference(self, *tensors: Tensor) -> Tensor:
        """PyTorch's interpolation along one direction after the other."""
        result = tensors[0]
        for dimension in (-2, -1):
            low, high, share = (torch.from_numpy(array) for array in self._mixture(dimension))
            weights = share.reshape(-1, *(1 for _ in range(-1 - dimension)))
            first, second = (
                result.index_select(result.dim() + dimension, positions.long()) for positions in (low, high)
            )
            result = first * (1 - weights) + second * weights
        return result

    def _mixture(self, dimension: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For each output position the lower and the upper input position, and the share of the upper one."""
        inputs, outputs, scale = self.x.shape[dimension], self.size[dimension], np.float32(self.scales[dimension])
        positions = np.arange(outputs, dtype=np.float32)
        if not self.linear:
            near = np.minimum(np.floor(positions * scale).astype(np.int64), inputs - 1)
            return near, near, np.zeros(outputs, dtype=np.float32)
        if self.align_corners:
            step = np.float32((inputs - 1) / (outputs - 1)) if outputs > 1 else np.float32(0)
            exact = positions * step
        else:
            exact = np.maximum((positions + np.float32(0.5)) * scale - np.float32(0.5), np.float32(0))
        low = np.minimum(np.floor(exact).astype(np.int64), inputs - 1)
        high = np.minimum(low + 1, inputs - 1)
        return low, high, np.clip(exact - low.astype(np.float32), 0, 1).astype(np.float32)

    def emit(self, kernel: Kernel) -> None:
        """Tables of positions and shares, and one loop nest."""
        code, element, (x,), y = kernel.code, kernel.target.element, kernel.inputs, kernel.output
        tables = []
        for dimension in (-2, -1):
            low, high, share = self._mixture(dimension)
            kind = smallest_unsigned(self.x.shape[dimension])
            arrays = (low.astype(kind), high.astype(kind), share) if self.linear else (low.astype(kind),)
            tables.append([kernel.constant(array) for array in arrays])
        planes = [operand.strides[:-2] for operand in (x, y)]
        with nest(code, self.shape[:-2], planes, "p") as (source, target), code.loop("i", self.size[0]):
            code.add(f"const {element} *in = {x.name} + {source};")
            code.add(f"{element} *to = y + {target} + i * {y.strides[-2]};")
            with code.loop("j", self.size[1]):
                corner = [
                    [f"in[{rows}[i] * {x.strides[-2]} + {columns}[j] * {x.strides[-1]}]" for columns in tables[1][:2]]
                    for rows in tables[0][:2]
                ]
                mixed = corner[0][0]
                if self.linear:
                    down, across = f"{tables[0][2]}[i]", f"{tables[1][2]}[j]"
                    for name, (left, right) in zip(("upper", "lower"), corner, strict=True):
                        code.add(f"const {element} {name} = {left} * (1.0f - {across}) + {right} * {across};")
                    mixed = f"upper * (1.0f - {down}) + lower * {down}"
                code.add(f"to[j * {y.strides[-1]}] = {mixed};")

    def describe(self) -> str:
        """The sizes."""
        kind = "linear" if self.linear else "nearest"
        return f"{kind} interpolation, {list(self.x.shape[-2:])} to {list(self.size)}"


def _upsampled(
    build: Builder,
    x: Value,
    output_size: Sequence[int] | None,
    scale_factors: Sequence[float | None] | None,
    *,
    linear: bool = False,
    align_corners: bool = False,
) -> Value:
    inputs = x.shape[2:]
    factors = list(scale_factors) if scale_factors else [None] * len(inputs)
    sizes = list(output_size) if output_size else [int(n * f) for n, f in zip(inputs, factors, strict=True) if f]
    scales = [1.0 / factor if factor else own / new for own, new, factor in zip(inputs, sizes, factors, strict=True)]
    x = build.computed(x)
    if len(inputs) == 1:
        row = viewed(x, lambda tensor: tensor.unsqueeze(-2))
        result = build.add(Upsample(row, (1, sizes[0]), (1.0, scales[0]), linear, align_corners))
        return viewed(result, lambda tensor: tensor.squeeze(-2))
    return build.add(Upsample(x, (sizes[0], sizes[1]), (scales[0], scales[1]), linear, align_corners))


@lowers(aten.upsample_nearest1d, aten.upsample_nearest2d)
def _nearest(
    build: Builder,
    x: Value,
    output_size: Sequence[int] | None,
    scale_factors: Sequence[float] | float | None = None,
    scales_w: float | None = None,
) -> Value:
    return _upsampled(build, x, output_size, _scales(scale_factors, scales_w, len(x.shape) - 2))


@lowers(aten.upsample_linear1d, aten.upsample_bilinear2d)
def _linear(
    build: Builder,
    x: Value,
    output_size: Sequence[int] | None,
    align_corners: bool,
    scale_factors: Sequence[float] | float | None = None,
    scales_w: float | None = None,
) -> Value:
    factors = _scales(scale_factors, scales_w, len(x.shape) - 2)
    return _upsampled(build, x, output_size, factors, linear=True, align_corners=align_corners)


def _scales(given: Sequence[float] | float | None, second: float | None, count: int) -> Sequence[float | None] | None:
    """One factor for each dimension: some overloads take a list, others one number after the other."""
    if given is None or isinstance(given, float | int):
        numbers = [given, second][:count]
        return numbers if any(numbers) else None
    return list(given)
