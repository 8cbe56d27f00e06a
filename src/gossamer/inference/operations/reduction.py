"""Sums, means and maxima over dimensions, and softmax over one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.inference.kernel import Kernel
from gossamer.inference.operations.functions import Function
from gossamer.inference.operations.pointwise import Pointwise, Stage
from gossamer.inference.program import Operation, Shape, Value, viewed
from gossamer.inference.registry import Builder, Refusal, lowers
from gossamer.inference.source import literal, nest

__all__ = ["Reduction", "Softmax", "split_dimensions"]

aten = torch.ops.aten

_REDUCTIONS: dict[str, Callable[..., Tensor]] = {"sum": torch.sum, "mean": torch.mean, "amax": torch.amax}


@dataclass(frozen=True, eq=False)
class Reduction(Operation):
    """A "sum", "mean" or "amax" over dimensions, which stay with size one."""

    x: Value
    kind: str
    dimensions: tuple[int, ...]

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The tensor."""
        return (self.x,)

    @property
    def shape(self) -> Shape:
        """One in each reduced dimension."""
        return tuple(1 if dimension in self.dimensions else size for dimension, size in enumerate(self.x.shape))

    def reference(self, *tensors: Tensor) -> Tensor:
        """PyTorch's function of that name."""
        return _REDUCTIONS[self.kind](tensors[0], self.dimensions, keepdim=True)

    def emit(self, kernel: Kernel) -> None:
        """Row by row: the rounding errors of a long sum stay those of a short one."""
        code, element, (x,), y = kernel.code, kernel.target.element, kernel.inputs, kernel.output
        kept, reduced = split_dimensions(self.x.shape, self.dimensions)
        largest = self.kind == "amax"
        start = kernel.target.splat("-INFINITY" if largest else "0.0f")
        with nest(code, kept.shape, [kept.of(x.strides), kept.of(y.strides)]) as (source, target):
            code.add(f"const {element} *in = {x.name} + {source};", f"{element} total = {start};")
            with nest(code, reduced.shape[:-1], [reduced.of(x.strides)[:-1]], "r") as (row,):
                code.add(f"{element} part = {start};")
                with code.loop("c", reduced.shape[-1]):
                    read = f"in[{row} + c * {reduced.of(x.strides)[-1]}]"
                    code.add(f"part = {kernel.helper('maximum')}(part, {read});" if largest else f"part += {read};")
                code.add(f"total = {kernel.helper('maximum')}(total, part);" if largest else "total += part;")
            scale = f" * {literal(1.0 / reduced.count)}" if self.kind == "mean" else ""
            code.add(f"y[{target}] = total{scale};")

    def describe(self) -> str:
        """The kind."""
        return f"{self.kind} over {list(self.dimensions)}"


@dataclass(frozen=True, eq=False)
class Softmax(Operation):
    """exp(x - max x) / sum exp(x - max x) along a dimension, or its logarithm.

    Where all x are -inf, that is not a number; `safe`: it is 0, as in PyTorch's attention where a mask hides all.
    """

    x: Value
    dimension: int
    log: bool = False
    safe: bool = False

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The tensor."""
        return (self.x,)

    @property
    def shape(self) -> Shape:
        """That of the tensor."""
        return self.x.shape

    def reference(self, *tensors: Tensor) -> Tensor:
        """PyTorch's own."""
        if self.safe:
            result: Tensor = aten._safe_softmax(tensors[0], self.dimension)
            return result
        function = torch.log_softmax if self.log else torch.softmax
        return function(tensors[0], self.dimension)

    def emit(self, kernel: Kernel) -> None:
        """Three passes along the dimension: maximum, exponentials and their sum, division."""
        code, element, (x,), y = kernel.code, kernel.target.element, kernel.inputs, kernel.output
        kept, along = split_dimensions(self.shape, (self.dimension,))
        (count,), (step,), (out,) = along.shape, along.of(x.strides), along.of(y.strides)
        exp = kernel.helper("exp")
        with nest(code, kept.shape, [kept.of(x.strides), kept.of(y.strides)]) as (source, target):
            code.add(f"const {element} *in = {x.name} + {source};", f"{element} *to = y + {target};")
            code.add(f"{element} largest = in[0];", f"{element} sum = {kernel.target.splat('0.0f')};")
            with code.loop("c", count):
                code.add(f"largest = {kernel.helper('maximum')}(largest, in[c * {step}]);")
            if self.safe:
                code.add(f"largest = {kernel.helper('maximum')}(largest, {kernel.target.splat('-3.4e38f')});")
            with code.loop("c", count):
                code.add(f"const {element} e = {exp}(in[c * {step}] - largest);", "sum += e;")
                if not self.log:
                    code.add(f"to[c * {out}] = e;")
            if self.safe:
                code.add(f"sum = {kernel.helper('where')}(sum, sum, {kernel.target.splat('1.0f')});")
            if self.log:
                code.add(f"const {element} shift = largest + {kernel.helper('log')}(sum);")
            with code.loop("c", count):
                code.add(f"to[c * {out}] = {f'in[c * {step}] - shift' if self.log else f'to[c * {out}] / sum'};")


@dataclass(frozen=True)
class Dimensions:
    """Some of the dimensions of a tensor."""

    dimensions: tuple[int, ...]
    shape: Shape

    def of(self, strides: Sequence[int]) -> tuple[int, ...]:
        """The strides along these dimensions."""
        return tuple(strides[dimension] for dimension in self.dimensions)

    @property
    def count(self) -> int:
        """Elements over these dimensions."""
        return torch.Size(self.shape).numel()


def split_dimensions(shape: Sequence[int], dimensions: Sequence[int]) -> tuple[Dimensions, Dimensions]:
    """The other dimensions, and these."""
    chosen = tuple(sorted(dimension % len(shape) for dimension in dimensions))
    others = tuple(dimension for dimension in range(len(shape)) if dimension not in chosen)
    return tuple(Dimensions(own, tuple(shape[p] for p in own)) for own in (others, chosen))  # type: ignore[return-value]


def _reduced(build: Builder, x: Value, kind: str, dim: Sequence[int] | int | None, keepdim: bool) -> Value:
    asked = [dim] if isinstance(dim, int) else list(dim or range(len(x.shape)))
    dimensions = tuple(sorted(dimension % len(x.shape) for dimension in asked))
    result = build.add(Reduction(x, kind, dimensions))
    return result if keepdim else viewed(result, lambda tensor: tensor.squeeze(dimensions))


def _lower_reduction(operator: str, kind: str) -> None:
    @lowers(getattr(aten, operator))
    def rule(
        build: Builder, x: Value, dim: Sequence[int] | int | None = None, keepdim: bool = False, *, dtype: object = None
    ) -> Value:
        if dtype not in (None, torch.float32):
            raise Refusal(f"its dtype is {dtype}; only float32 is computed")
        return _reduced(build, x, kind, dim, keepdim)


for _operator in ("sum", "mean", "amax"):
    _lower_reduction(_operator, _operator)


@lowers(aten.linalg_vector_norm)
def _vector_norm(
    build: Builder,
    x: Value,
    ord: float = 2,  # noqa: A002
    dim: Sequence[int] | int | None = None,
    keepdim: bool = False,
    *,
    dtype: object = None,
) -> Value:
    """The square root of the sum of squares."""
    if ord != 2 or dtype not in (None, torch.float32):
        raise Refusal(f"its order is {ord} and its dtype {dtype}; only the Euclidean norm of float32 is computed")
    squares = build.add(Pointwise(x, (Stage(Function("square")),)))
    return build.add(Pointwise(_reduced(build, squares, "sum", dim, keepdim), (Stage(Function("sqrt")),)))


def _lower_softmax(operator: str, log: bool) -> None:
    @lowers(getattr(aten, operator), getattr(aten, f"_{operator}"))
    def rule(build: Builder, x: Value, dim: int, dtype: object = None) -> Value:
        if dtype not in (None, False, torch.float32):
            raise Refusal(f"its dtype is {dtype}; only float32 is computed")
        return build.add(Softmax(x, dim % len(x.shape), log))


_lower_softmax("softmax", log=False)
_lower_softmax("log_softmax", log=True)
