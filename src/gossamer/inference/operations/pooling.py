"""Maximum and average over windows: of fixed size, or as many as there are outputs (adaptive)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gossamer.inference.kernel import Kernel
from gossamer.inference.operations.convolution.sparse_weight import smallest_unsigned
from gossamer.inference.program import Operation, Shape, Value, viewed
from gossamer.inference.registry import Builder, Refusal, lowers
from gossamer.inference.source import Code, literal, nest

__all__ = ["Axis", "Pool", "fixed_windows"]

aten = torch.ops.aten


@dataclass(frozen=True)
class Axis:
    """The windows along one dimension: input positions `start, start + step, ...` below `stop`, and their divisor."""

    starts: tuple[int, ...]
    stops: tuple[int, ...]
    step: int
    divisors: tuple[int, ...]

    @property
    def regular(self) -> tuple[int, int] | None:
        """(distance between windows, size of each) if all are alike and the first starts at zero."""
        sizes = {stop - start for start, stop in zip(self.starts, self.stops, strict=True)}
        distance = self.starts[1] - self.starts[0] if len(self.starts) > 1 else 0
        alike = all(start == number * distance for number, start in enumerate(self.starts))
        return (distance, sizes.pop()) if alike and len(sizes) == 1 else None


@dataclass(frozen=True, eq=False)
class Pool(Operation):
    """The "max" or "mean" of each window of the last two dimensions."""

    x: Value
    kind: str
    rows: Axis
    columns: Axis
    divisor: int | None = None

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The tensor."""
        return (self.x,)

    @property
    def shape(self) -> Shape:
        """One position for each window."""
        return (*self.x.shape[:-2], len(self.rows.starts), len(self.columns.starts))

    def reference(self, *tensors: Tensor) -> Tensor:
        """Window by window."""
        result = torch.empty(self.shape)
        for i, (top, bottom) in enumerate(zip(self.rows.starts, self.rows.stops, strict=True)):
            for j, (left, right) in enumerate(zip(self.columns.starts, self.columns.stops, strict=True)):
                window = tensors[0][..., top : bottom : self.rows.step, left : right : self.columns.step]
                if self.kind == "max":
                    result[..., i, j] = window.amax((-2, -1))
                else:
                    count = self.divisor or self.rows.divisors[i] * self.columns.divisors[j]
                    result[..., i, j] = window.sum((-2, -1)) / count
        return result

    def emit(self, kernel: Kernel) -> None:
        """Loops over the windows, and over the positions of each."""
        code, element, (x,), y = kernel.code, kernel.target.element, kernel.inputs, kernel.output
        largest = self.kind == "max"
        planes = [operand.strides[:-2] for operand in (x, y)]
        with nest(code, self.shape[:-2], planes, "p") as (source, target), code.loop("i", self.shape[-2]):
            _window(kernel, code, self.rows, "i", "top", "bottom")
            with code.loop("j", self.shape[-1]):
                _window(kernel, code, self.columns, "j", "left", "right")
                code.add(f"{element} v = {kernel.target.splat('-INFINITY' if largest else '0.0f')};")
                with (
                    code.block(f"for (int r = top; r < bottom; r += {self.rows.step})"),
                    code.block(f"for (int c = left; c < right; c += {self.columns.step})"),
                ):
                    read = f"{x.name}[{source} + r * {x.strides[-2]} + c * {x.strides[-1]}]"
                    code.add(f"v = {kernel.helper('maximum')}(v, {read});" if largest else f"v += {read};")
                if not largest:
                    code.add(f"v = v * {self._factor(kernel)};")
                code.add(f"y[{target} + i * {y.strides[-2]} + j * {y.strides[-1]}] = v;")

    def _factor(self, kernel: Kernel) -> str:
        if self.divisor is not None:
            return literal(1.0 / self.divisor)
        factors = []
        for axis, name in ((self.rows, "i"), (self.columns, "j")):
            numbers = 1.0 / np.array(axis.divisors)
            same = len(set(axis.divisors)) == 1
            factors.append(literal(numbers[0]) if same else f"{kernel.constant(numbers.astype(np.float32))}[{name}]")
        return " * ".join(factors)

    def describe(self) -> str:
        """Kind and sizes."""
        return f"{self.kind} over windows, {list(self.x.shape)} to {list(self.shape)}"


def _window(kernel: Kernel, code: Code, axis: Axis, position: str, start: str, stop: str) -> None:
    """Declare where the window at `position` starts and stops."""
    if axis.regular is not None:
        distance, size = axis.regular
        code.add(f"const int {start} = {position} * {distance};", f"const int {stop} = {start} + {size};")
        return
    for name, limits in ((start, axis.starts), (stop, axis.stops)):
        array = kernel.constant(np.array(limits, dtype=smallest_unsigned(max(limits) + 1)))
        code.add(f"const int {name} = (int){array}[{position}];")


def fixed_windows(
    size: int, kernel: int, stride: int, padding: int, dilation: int, ceil: bool, count_padding: bool
) -> Axis:
    """The windows of PyTorch's pooling layers, cut to the input."""
    reach = dilation * (kernel - 1) + 1
    outputs = (size + 2 * padding - reach + (stride - 1 if ceil else 0)) // stride + 1
    if ceil and (outputs - 1) * stride >= size + padding:
        outputs -= 1  # a window must start inside the input or in the padding before it
    starts, stops, divisors = [], [], []
    for number in range(outputs):
        first = number * stride - padding
        inside = [first + dilation * tap for tap in range(kernel) if 0 <= first + dilation * tap < size]
        starts.append(inside[0] if inside else 0)
        stops.append(inside[-1] + 1 if inside else 0)
        divisors.append(min(first + kernel, size + padding) - first if count_padding else len(inside))
    return Axis(tuple(starts), tuple(stops), dilation, tuple(divisors))


def adaptive_windows(size: int, outputs: int) -> Axis:
    """The windows of PyTorch's adaptive pooling layers."""
    starts = tuple(number * size // outputs for number in range(outputs))
    stops = tuple(-(-(number + 1) * size // outputs) for number in range(outputs))
    return Axis(starts, stops, 1, tuple(stop - start for start, stop in zip(starts, stops, strict=True)))


def _pair(numbers: Sequence[int] | int, count: int) -> tuple[int, ...]:
    """One number for each dimension."""
    given = (numbers,) if isinstance(numbers, int) else tuple(numbers)
    return given * count if len(given) == 1 else given


def _pooled(
    build: Builder, x: Value, kind: str, axes: Callable[[int, int], Axis], dimensions: int, divisor: int | None = None
) -> Value:
    """Pool the last one or two dimensions; `axes(dimension, size)` gives the windows."""
    x = build.computed(x)
    if dimensions == 2:
        return build.add(Pool(x, kind, axes(0, x.shape[-2]), axes(1, x.shape[-1]), divisor))
    row = viewed(x, lambda tensor: tensor.unsqueeze(-2))
    result = build.add(Pool(row, kind, adaptive_windows(1, 1), axes(0, x.shape[-1]), divisor))
    return viewed(result, lambda tensor: tensor.squeeze(-2))


def _fixed(
    build: Builder,
    x: Value,
    kind: str,
    dimensions: int,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] | int = 0,
    dilation: Sequence[int] | int = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Value:
    """Pool windows of one size; the arguments are those of PyTorch's maximum, then those of its mean."""
    kernel, steps = _pair(kernel_size, dimensions), _pair(stride or kernel_size, dimensions)
    pads, gaps = _pair(padding, dimensions), _pair(dilation, dimensions)
    count = count_include_pad and kind == "mean"

    def axis(number: int, size: int) -> Axis:
        return fixed_windows(size, kernel[number], steps[number], pads[number], gaps[number], ceil_mode, count)

    return _pooled(build, x, kind, axis, dimensions, divisor_override)


def _lower_max(operator: str, dimensions: int, indices: bool) -> None:
    @lowers(getattr(aten, operator))
    def rule(build: Builder, x: Value, *windows: Any) -> Value | tuple[Value, None]:
        result = _fixed(build, x, "max", dimensions, *windows)
        return (result, None) if indices else result


_lower_max("max_pool1d", 1, indices=False)
_lower_max("max_pool2d", 2, indices=False)
_lower_max("max_pool2d_with_indices", 2, indices=True)


def _lower_average(operator: str, dimensions: int) -> None:
    @lowers(getattr(aten, operator))
    def rule(
        build: Builder, x: Value, size: Sequence[int], stride: Sequence[int] = (), padding: Any = 0, *rest: Any
    ) -> Value:
        return _fixed(build, x, "mean", dimensions, size, stride, padding, 1, *rest)


_lower_average("avg_pool1d", 1)
_lower_average("avg_pool2d", 2)


def _lower_adaptive(operator: str, kind: str, dimensions: int) -> None:
    @lowers(getattr(aten, operator))
    def rule(build: Builder, x: Value, output_size: Sequence[int]) -> Value | tuple[Value, None]:
        sizes = _pair(output_size, dimensions)
        if any(size == 0 for size in sizes):
            raise Refusal("its output is empty")
        result = _pooled(build, x, kind, lambda number, size: adaptive_windows(size, sizes[number]), dimensions)
        return (result, None) if kind == "max" else result


_lower_adaptive("adaptive_avg_pool1d", "mean", 1)
_lower_adaptive("adaptive_avg_pool2d", "mean", 2)
_lower_adaptive("_adaptive_avg_pool2d", "mean", 2)
_lower_adaptive("adaptive_max_pool1d", "max", 1)
_lower_adaptive("adaptive_max_pool2d", "max", 2)
