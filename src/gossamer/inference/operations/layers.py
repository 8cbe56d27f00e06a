"""Rules for layers with weights: linear layers and convolutions, ordinary and transposed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from gossamer.inference.operations.convolution import Convolution
from gossamer.inference.operations.functions import Function
from gossamer.inference.operations.matmul import Matmul
from gossamer.inference.operations.pointwise import binary
from gossamer.inference.program import Constant, Value, viewed
from gossamer.inference.registry import Builder, Refusal, constant_of, lowers, optional_constant

__all__ = ["linear"]

aten = torch.ops.aten


@lowers(aten.linear)
def linear(build: Builder, x: Value, weight: Value, bias: Value | None = None) -> Value:
    """x weight^T + bias, over the last dimension of x."""
    matrix = constant_of(weight, "weight").tensor
    shift = optional_constant(bias, "bias")
    *leading, features = x.shape
    flat = build.reshaped(x, (math.prod(leading), features))
    weight_as_taps = _plain(matrix)[:, :, None, None]
    return build.add(Convolution(flat, weight_as_taps, _bias(shift, matrix.shape[0]), leading=tuple(leading)))


@lowers(aten.mm)
def _mm(build: Builder, x: Value, mat2: Value) -> Value:
    return _matmul(build, x, mat2)


@lowers(aten.matmul)
def _matmul(build: Builder, x: Value, other: Value) -> Value:
    if isinstance(other, Constant) and len(other.shape) == 2:
        return linear(build, x, viewed(other, lambda tensor: tensor.t()))
    if len(x.shape) < 2 or len(other.shape) < 2:
        raise Refusal("one of its operands is a vector")
    return build.add(Matmul(build.computed(x), build.computed(other)))


@lowers(aten.addmm)
def _addmm(build: Builder, x: Value, mat1: Value, mat2: Value, *, beta: float = 1.0, alpha: float = 1.0) -> Value:
    if (beta, alpha) != (1.0, 1.0):
        raise Refusal("its factors are not 1")
    if isinstance(mat2, Constant) and isinstance(x, Constant) and len(x.shape) == 1:
        return linear(build, mat1, viewed(mat2, lambda tensor: tensor.t()), x)
    return binary(build, Function("add"), _matmul(build, mat1, mat2), x)


@lowers(aten.conv1d, aten.conv2d)
def _convolved(
    build: Builder,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Sequence[int] | int = 1,
    padding: Sequence[int] | int | str = 0,
    dilation: Sequence[int] | int = 1,
    groups: int = 1,
    output_padding: Sequence[int] | int | None = None,
) -> Value:
    """A convolution of one or two dimensions; transposed if there is an `output_padding`."""
    kernel = constant_of(weight, "weight").tensor
    dimensions = kernel.dim() - 2
    if dimensions > 2:
        raise Refusal(f"it has {dimensions} dimensions; there are kernels for one and two")
    if len(x.shape) != kernel.dim():
        raise Refusal("its input has no batch dimension")
    x = build.computed(x)
    if dimensions == 1:
        kernel = kernel.unsqueeze(2)
    gaps = _for_rows_and_columns(dilation, dimensions, 1)
    around = _padding(padding, dimensions, gaps, kernel)
    if output_padding is not None:
        extra = _for_rows_and_columns(output_padding, dimensions, 0)
        around = (around[0], around[1] - extra[0], around[2], around[3] - extra[1])
        # [inputs, outputs / groups, ...] -> [outputs, inputs / groups, ...]
        kernel = kernel.reshape(groups, -1, *kernel.shape[1:]).transpose(1, 2).flatten(0, 1)
    layer = Convolution(
        x,
        _plain(kernel),
        _bias(optional_constant(bias, "bias"), kernel.shape[0]),
        _for_rows_and_columns(stride, dimensions, 1),
        around,
        gaps,
        groups,
        transposed=output_padding is not None,
    )
    return build.add(layer)


@lowers(aten.conv_transpose1d, aten.conv_transpose2d)
def _conv_transpose(
    build: Builder,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Sequence[int] | int = 1,
    padding: Sequence[int] | int = 0,
    output_padding: Sequence[int] | int = 0,
    groups: int = 1,
    dilation: Sequence[int] | int = 1,
) -> Value:
    return _convolved(build, x, weight, bias, stride, padding, dilation, groups, output_padding)


@lowers(aten.convolution)
def _convolution(
    build: Builder,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Value:
    extra = output_padding if transposed else None
    return _convolved(build, x, weight, bias, stride, padding, dilation, groups, extra)


def _for_rows_and_columns(numbers: Sequence[int] | int, dimensions: int, missing: int) -> tuple[int, int]:
    """One number for rows and one for columns; a convolution of one dimension has one row."""
    given = [numbers] if isinstance(numbers, int) else list(numbers)
    if dimensions == 1:
        return missing, given[0]
    return given[0], given[-1]


def _padding(
    padding: Sequence[int] | int | str, dimensions: int, dilation: tuple[int, int], kernel: Tensor
) -> tuple[int, int, int, int]:
    """Before and behind the rows, before and behind the columns."""
    if padding == "same":
        reach = [gap * (size - 1) for gap, size in zip(dilation, kernel.shape[2:], strict=True)]
        return reach[0] // 2, reach[0] - reach[0] // 2, reach[1] // 2, reach[1] - reach[1] // 2
    plain = 0 if padding == "valid" else padding
    if isinstance(plain, str):
        raise Refusal(f"its padding is {padding!r}")
    rows, columns = _for_rows_and_columns(plain, dimensions, 0)
    return rows, rows, columns, columns


def _plain(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous()


def _bias(bias: Constant | None, outputs: int) -> Tensor:
    return torch.zeros(outputs) if bias is None else _plain(bias.tensor)
