"""Functions applied to each element of a tensor, several in one pass, with broadcasting.

    y = f_n(... f_2(f_1(x, a_1), a_2) ..., a_n)

Each f is a function of one number, or of the number and an operand a: another tensor or a constant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from gossamer.inference.kernel import Kernel, Operand
from gossamer.inference.operations.functions import Function
from gossamer.inference.program import Constant, Operation, Shape, Value, broadcast
from gossamer.inference.registry import RULES, Builder, Refusal, constant_of, lowers, optional_constant
from gossamer.inference.source import literal, nest

__all__ = ["Pointwise", "Stage", "as_float", "binary", "broadcast_strides", "scaled", "unary"]

aten = torch.ops.aten


class Stage(NamedTuple):
    """One function of a pass, with its operand if it has two arguments."""

    function: Function
    operand: Value | None = None


@dataclass(frozen=True, eq=False)
class Pointwise(Operation):
    """A pass over a tensor."""

    x: Value
    stages: tuple[Stage, ...]

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The tensor, and the operands that are not single numbers."""
        return (self.x, *(stage.operand for stage in self.stages if stage.operand and not _is_number(stage.operand)))

    @property
    def shape(self) -> Shape:
        """All broadcast together."""
        operands = (stage.operand.shape for stage in self.stages if stage.operand)
        return broadcast(self.x.shape, *operands)

    def reference(self, *tensors: Tensor) -> Tensor:
        """One function after the other."""
        result, *operands = tensors
        for function, operand in self.stages:
            if operand is None:
                result = function.apply(result)
            else:
                number = _is_number(operand)
                result = function.apply(result, constant_of(operand, "number").tensor if number else operands.pop(0))
        return result.expand(self.shape)

    def emit(self, kernel: Kernel) -> None:
        """One loop nest; each element is read, passed through the functions, and written."""
        strides = [broadcast_strides(operand, self.shape) for operand in (*kernel.inputs, kernel.output)]
        with nest(kernel.code, self.shape, strides) as indices:
            reads = [f"{x.name}[{index}]" for x, index in zip(kernel.inputs, indices[:-1], strict=True)]
            kernel.code.add(f"{kernel.target.element} v = {reads.pop(0)};")
            for function, operand in self.stages:
                other = ""
                if operand is not None:
                    other = literal(_number(operand)) if _is_number(operand) else reads.pop(0)
                    if not function.is_expression and isinstance(operand, Constant):
                        other = kernel.target.splat(other)
                kernel.code.add(f"v = {function.expression(kernel, 'v', other)};")
            kernel.code.add(f"{kernel.output.name}[{indices[-1]}] = v;")

    def describe(self) -> str:
        """The functions."""
        return ", ".join(stage.function.name for stage in self.stages)


def broadcast_strides(operand: Operand, shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of an operand that is broadcast to `shape`."""
    missing = len(shape) - len(operand.shape)
    own = (0 if size == 1 else stride for size, stride in zip(operand.shape, operand.strides, strict=True))
    return (*(0 for _ in range(missing)), *own)


def _is_number(value: Value) -> bool:
    return isinstance(value, Constant) and value.tensor.numel() == 1


def _number(value: Value) -> float:
    return float(constant_of(value, "number").tensor.item())


def unary(name: str, *parameters: float) -> Function:
    """A function of one number."""
    return Function(name, tuple(float(parameter) for parameter in parameters))


def _pass(build: Builder, x: Value, name: str, *parameters: float) -> Value:
    return build.add(Pointwise(x, (Stage(unary(name, *parameters)),)))


def _lower_plain(name: str) -> None:
    @lowers(getattr(aten, name))
    def rule(build: Builder, x: Value) -> Value:
        return _pass(build, x, name)


for _name in (
    "abs",
    "cos",
    "erf",
    "exp",
    "hardsigmoid",
    "hardswish",
    "log",
    "neg",
    "reciprocal",
    "relu",
    "rsqrt",
    "sigmoid",
    "silu",
    "sin",
    "sqrt",
    "square",
    "tanh",
):
    _lower_plain(_name)


@lowers(aten.relu6)
def _relu6(build: Builder, x: Value) -> Value:
    return _pass(build, x, "clamp", 0.0, 6.0)


@lowers(aten.hardtanh)
def _hardtanh(build: Builder, x: Value, min_val: float = -1.0, max_val: float = 1.0) -> Value:
    return _pass(build, x, "clamp", min_val, max_val)


@lowers(aten.clamp)
def _clamp(build: Builder, x: Value, min: float | None = None, max: float | None = None) -> Value:  # noqa: A002
    if isinstance(min, Value) or isinstance(max, Value):
        raise Refusal("its bounds are tensors")
    return _pass(build, x, "clamp", -math.inf if min is None else min, math.inf if max is None else max)


@lowers(aten.clamp_min)
def _clamp_min(build: Builder, x: Value, min: float) -> Value:  # noqa: A002
    return _clamp(build, x, min=min)


@lowers(aten.clamp_max)
def _clamp_max(build: Builder, x: Value, max: float) -> Value:  # noqa: A002
    return _clamp(build, x, max=max)


@lowers(aten.leaky_relu)
def _leaky_relu(build: Builder, x: Value, negative_slope: float = 0.01) -> Value:
    return _pass(build, x, "leaky_relu", negative_slope)


@lowers(aten.elu)
def _elu(build: Builder, x: Value, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Value:
    if (scale, input_scale) != (1.0, 1.0):
        raise Refusal("its scales are not 1")
    return _pass(build, x, "elu", alpha)


@lowers(aten.gelu)
def _gelu(build: Builder, x: Value, *, approximate: str = "none") -> Value:
    return _pass(build, x, "gelu" if approximate == "none" else "gelu_tanh")


@lowers(aten.softplus)
def _softplus(build: Builder, x: Value, beta: float = 1.0, threshold: float = 20.0) -> Value:
    return _pass(build, x, "softplus", beta, threshold)


@lowers(aten.pow)
def _pow(build: Builder, x: Value, exponent: float) -> Value:
    if isinstance(exponent, Value) or not isinstance(x, Value):
        raise Refusal("its exponent is a tensor")
    return _pass(build, x, "square") if exponent == 2 else _pass(build, x, "pow", exponent)


def _lower_binary(name: str) -> None:
    @lowers(getattr(aten, name), promotes=True)
    def rule(
        build: Builder, x: Value, other: Value | float, *, alpha: float = 1.0, rounding_mode: object = None
    ) -> Value:
        if rounding_mode is not None:
            raise Refusal(f"its rounding mode is {rounding_mode!r}")
        return binary(build, Function(name), x, scaled(build, as_float(other), alpha))


for _name in ("add", "div", "maximum", "minimum", "mul", "sub"):
    _lower_binary(_name)

lowers(aten.multiply, promotes=True)(RULES[aten.mul])


@lowers(aten.rsub, promotes=True)
def _rsub(build: Builder, x: Value, other: Value | float, alpha: float = 1.0) -> Value:
    return binary(build, Function("sub"), as_float(other), scaled(build, x, alpha))


def binary(build: Builder, function: Function, x: Value, other: Value) -> Value:
    """A function of two values, at least one of which is computed."""
    if isinstance(x, Constant):
        return build.add(Pointwise(other, (Stage(function.swapped(), as_float(x)),)))
    return build.add(Pointwise(x, (Stage(function, as_float(other)),)))


def as_float(value: Value | float) -> Value:
    """A value as it is, a number or a constant as one of float32."""
    if isinstance(value, Value) and not isinstance(value, Constant):
        return value
    given = value.tensor if isinstance(value, Value) else torch.tensor(value)
    numbers = given.float()
    if not given.is_floating_point() and not numbers.to(given.dtype).equal(given):
        raise Refusal("a constant has integers that float32 does not hold")
    return Constant(tuple(given.shape), numbers)


def scaled(build: Builder, x: Value, factor: float) -> Value:
    """`factor` times `x`."""
    if factor == 1:
        return x
    if isinstance(x, Constant):
        return Constant(x.shape, x.tensor * factor)
    return build.add(Pointwise(x, (Stage(Function("mul"), as_float(factor)),)))


@lowers(aten.addcmul)
def _addcmul(build: Builder, x: Value, tensor1: Value, tensor2: Value, *, value: float = 1.0) -> Value:
    """x + value tensor1 tensor2."""
    if isinstance(tensor1, Constant) and isinstance(tensor2, Constant):
        numbers = value * tensor1.tensor * tensor2.tensor
        product: Value = Constant(tuple(numbers.shape), numbers)
    else:
        product = scaled(build, binary(build, Function("mul"), tensor1, tensor2), value)
    return binary(build, Function("add"), x, product)


@lowers(aten.batch_norm)
def _batch_norm(
    build: Builder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = False,
) -> Value:
    del momentum, cudnn_enabled
    mean, variance = optional_constant(running_mean, "mean"), optional_constant(running_var, "variance")
    if training or mean is None or variance is None:
        raise Refusal(
            "it normalises by the statistics of the batch, so that the output of a sample depends on the others. "
            "Give it running statistics (track_running_stats=True)"
        )
    scale, shift = optional_constant(weight, "weight"), optional_constant(bias, "bias")
    factor = 1.0 / torch.sqrt(variance.tensor.double() + eps)
    if scale is not None:
        factor = factor * scale.tensor.double()
    offset = -mean.tensor.double() * factor
    if shift is not None:
        offset = offset + shift.tensor.double()
    return scale_and_shift(build, x, factor, offset)


@lowers(aten._native_batch_norm_legit_no_training)
def _batch_norm_no_training(
    build: Builder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    momentum: float,
    eps: float,
) -> tuple[Value | None, ...]:
    return _batch_norm(build, x, weight, bias, running_mean, running_var, False, momentum, eps), None, None


def scale_and_shift(build: Builder, x: Value, factor: Tensor, offset: Tensor) -> Value:
    """`factor[c] x + offset[c]` over dimension 1."""
    stages = tuple(
        Stage(Function(name), _along_channels(numbers, len(x.shape)))
        for name, numbers in (("mul", factor), ("add", offset))
    )
    return build.add(Pointwise(x, stages))


def _along_channels(numbers: Tensor, dimensions: int) -> Constant:
    tensor = numbers.float().reshape(-1, *(1 for _ in range(dimensions - 2)))
    return Constant(tuple(tensor.shape), tensor)
