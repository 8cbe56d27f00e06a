"""LayerNorm, GroupNorm, InstanceNorm and RMSNorm: each sample is normalised by its own statistics.

    y = (x - mean x) / sqrt(var x + eps) * weight + bias        (RMSNorm: without the mean)

over the last dimensions of a view of the input: [..., groups, what is normalised together].
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.inference.kernel import Kernel
from gossamer.inference.operations.reduction import split_dimensions
from gossamer.inference.program import Constant, Operation, Shape, Value
from gossamer.inference.registry import Builder, Refusal, lowers, optional_constant
from gossamer.inference.source import Code, literal, nest

__all__ = ["Normalization"]

aten = torch.ops.aten


@dataclass(frozen=True, eq=False)
class Normalization(Operation):
    """Over the last `dimensions` dimensions; weight and bias have the shape of `x`, expanded."""

    x: Value
    dimensions: int
    epsilon: float
    weight: Constant | None = None
    bias: Constant | None = None
    centred: bool = True

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The tensor, weight and bias."""
        return tuple(value for value in (self.x, self.weight, self.bias) if value is not None)

    @property
    def shape(self) -> Shape:
        """That of the tensor."""
        return self.x.shape

    def reference(self, *tensors: Tensor) -> Tensor:
        """The formula."""
        x, dimensions = tensors[0], tuple(range(-self.dimensions, 0))
        centred = x - x.mean(dimensions, keepdim=True) if self.centred else x
        result = centred * torch.rsqrt(centred.square().mean(dimensions, keepdim=True) + self.epsilon)
        if self.weight is not None:
            result = result * self.weight.tensor
        return result if self.bias is None else result + self.bias.tensor

    def emit(self, kernel: Kernel) -> None:
        """Three passes: the mean; its rounding error and the variance around it; the result."""
        code, element, x, y = kernel.code, kernel.target.element, kernel.inputs[0], kernel.output
        outer, inner = split_dimensions(self.shape, range(-self.dimensions, 0))
        affine = list(kernel.inputs[1:])
        heads = [outer.of(operand.strides) for operand in (x, y, *affine)]
        strides = [inner.of(operand.strides) for operand in (x, y, *affine)]
        each, zero = literal(1.0 / inner.count), kernel.target.splat("0.0f")
        with nest(code, outer.shape, heads) as (source, target, *constants):
            code.add(f"const {element} *in = {x.name} + {source};", f"{element} *to = y + {target};")
            for operand, start in zip(affine, constants, strict=True):
                code.add(f"const float *{operand.name}_at = {operand.name} + {start};")
            code.add(f"{element} mean = {zero}, error = {zero}, square = {zero};")
            if self.centred:
                _add_up(code, element, zero, inner.shape, strides[0], {"mean": "v"})
                code.add(f"mean = mean * {each};")
            sums = {"square": "(v - mean) * (v - mean)", **({"error": "v - mean"} if self.centred else {})}
            _add_up(code, element, zero, inner.shape, strides[0], sums)
            code.add(f"error = error * {each};", "mean = mean + error;")
            variance = f"square * {each} - error * error + {literal(self.epsilon)}"
            code.add(f"const {element} scale = {kernel.helper('rsqrt')}({variance});")
            with nest(code, inner.shape, strides, "c") as (read, write, *numbers):
                terms = [f"{operand.name}_at[{number}]" for operand, number in zip(affine, numbers, strict=True)]
                factors = [f"(in[{read}] - mean)", "scale", *(terms[:1] if self.weight is not None else [])]
                shift = f" + {terms[-1]}" if self.bias is not None else ""
                code.add(f"to[{write}] = {' * '.join(factors)}{shift};")

    def describe(self) -> str:
        """How many are normalised together."""
        return f"normalisation of {math.prod(self.shape[-self.dimensions :])} elements together"


def _add_up(
    code: Code, element: str, zero: str, shape: Sequence[int], strides: Sequence[int], sums: Mapping[str, str]
) -> None:
    """Add to each variable the sum of its expression of the element `v`: in parts, for accuracy."""
    with code.block(""), nest(code, shape[:-1], [strides[:-1]], "r") as (row,):
        code.add(f"{element} {', '.join(f'part_{name} = {zero}' for name in sums)};")
        with code.loop("c", shape[-1]):
            code.add(f"const {element} v = in[{row} + c * {strides[-1]}];")
            code.add(*(f"part_{name} += {term};" for name, term in sums.items()))
        code.add(*(f"{name} += part_{name};" for name in sums))


def _expanded(value: Value | None, what: str, shape: Sequence[int], size: Shape) -> Constant | None:
    """A constant in `shape`, expanded to `size`."""
    constant = optional_constant(value, what)
    return None if constant is None else Constant(size, constant.tensor.reshape(tuple(shape)).expand(size))


@lowers(aten.layer_norm)
def _layer_norm(
    build: Builder,
    x: Value,
    normalized_shape: Sequence[int],
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Value:
    del cudnn_enable
    shape = tuple(normalized_shape)
    scale, shift = _expanded(weight, "weight", shape, x.shape), _expanded(bias, "bias", shape, x.shape)
    return build.add(Normalization(x, len(shape), eps, scale, shift))


@lowers(aten.rms_norm)
def _rms_norm(
    build: Builder, x: Value, normalized_shape: Sequence[int], weight: Value | None = None, eps: float | None = None
) -> Value:
    shape = tuple(normalized_shape)
    epsilon = torch.finfo(torch.float32).eps if eps is None else eps
    return build.add(
        Normalization(x, len(shape), epsilon, _expanded(weight, "weight", shape, x.shape), None, centred=False)
    )


@lowers(aten.group_norm)
def _group_norm(
    build: Builder,
    x: Value,
    num_groups: int,
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Value:
    del cudnn_enabled
    samples, channels, *rest = x.shape
    apart = (samples, num_groups, channels // num_groups, *rest)
    constants = (1, num_groups, channels // num_groups, *(1 for _ in rest))
    scale, shift = _expanded(weight, "weight", constants, apart), _expanded(bias, "bias", constants, apart)
    result = build.add(Normalization(build.reshaped(x, apart), len(apart) - 2, eps, scale, shift))
    return build.reshaped(result, x.shape)


@lowers(aten.instance_norm)
def _instance_norm(
    build: Builder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Value:
    del running_mean, running_var, momentum, cudnn_enabled
    if not use_input_stats:
        raise Refusal("it uses running statistics; use BatchNorm instead, which computes the same")
    return _group_norm(build, x, x.shape[1], weight, bias, eps)
