"""Products of two computed matrices, and attention made of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.inference.kernel import Kernel, Operand
from gossamer.inference.operations.functions import Function
from gossamer.inference.operations.pointwise import Pointwise, Stage, binary, broadcast_strides, scaled
from gossamer.inference.operations.reduction import Softmax
from gossamer.inference.operations.where import chosen
from gossamer.inference.program import Constant, Operation, Shape, Value, broadcast, viewed
from gossamer.inference.registry import Builder, Refusal, lowers
from gossamer.inference.source import nest

__all__ = ["Matmul"]

aten = torch.ops.aten

_TILE = 4


@dataclass(frozen=True, eq=False)
class Matmul(Operation):
    """[..., m, k] times [..., k, n], with the leading dimensions broadcast."""

    left: Value
    right: Value

    @property
    def inputs(self) -> tuple[Value, ...]:
        """Both."""
        return (self.left, self.right)

    @property
    def shape(self) -> Shape:
        """[..., m, n]."""
        leading = broadcast(self.left.shape[:-2], self.right.shape[:-2])
        return (*leading, self.left.shape[-2], self.right.shape[-1])

    def reference(self, *tensors: Tensor) -> Tensor:
        """PyTorch's own."""
        return tensors[0] @ tensors[1]

    def emit(self, kernel: Kernel) -> None:
        """Four columns of the result at a time: one read of the left matrix serves all four."""
        a, b = (self._whole(operand) for operand in kernel.inputs)
        y = kernel.output.strides
        *leading, rows, columns = self.shape
        starts = [strides[:-2] for strides in (a, b, y)]
        code = kernel.code
        with nest(code, leading, starts, "p") as (left, right, target), code.loop("i", rows):
            code.add(f"const {kernel.target.element} *u = x0 + {left} + i * {a[-2]};")
            code.add(f"const {kernel.target.element} *v = x1 + {right};")
            code.add(f"{kernel.target.element} *to = y + {target} + i * {y[-2]};")
            whole = columns - columns % _TILE
            if whole:
                with code.loop("j", whole, _TILE):
                    self._tile(kernel, _TILE, "j", a, b, y)
            for rest in range(whole, columns):
                with code.block(""):
                    self._tile(kernel, 1, str(rest), a, b, y)

    def _whole(self, operand: Operand) -> tuple[int, ...]:
        return broadcast_strides(operand, (*self.shape[:-2], *operand.shape[-2:]))

    def _tile(
        self, kernel: Kernel, width: int, first: str, a: tuple[int, ...], b: tuple[int, ...], y: tuple[int, ...]
    ) -> None:
        code, zero = kernel.code, kernel.target.splat("0.0f")
        sums = [f"s{number}" for number in range(width)]
        code.add(f"{kernel.target.element} {', '.join(f'{name} = {zero}' for name in sums)};")
        with code.loop("k", self.left.shape[-1]):
            code.add(f"const {kernel.target.element} w = u[k * {a[-1]}];")
            for number, name in enumerate(sums):
                code.add(f"{name} += w * v[k * {b[-2]} + ({first} + {number}) * {b[-1]}];")
        for number, name in enumerate(sums):
            code.add(f"to[({first} + {number}) * {y[-1]}] = {name};")

    def describe(self) -> str:
        """The sizes."""
        return f"product of matrices {list(self.left.shape)} and {list(self.right.shape)}"


@lowers(aten.bmm)
def _bmm(build: Builder, x: Value, mat2: Value) -> Value:
    return build.add(Matmul(build.computed(x), build.computed(mat2)))


@lowers(aten.baddbmm)
def _baddbmm(build: Builder, x: Value, batch1: Value, batch2: Value, *, beta: float = 1.0, alpha: float = 1.0) -> Value:
    """beta x + alpha batch1 batch2."""
    product = scaled(build, _bmm(build, batch1, batch2), alpha)
    return binary(build, Function("add"), product, scaled(build, x, beta)) if beta else product


def attention(
    build: Builder,
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    """softmax(query key^T scale + mask) value."""
    if dropout_p:
        raise Refusal(f"its dropout is {dropout_p}, also in evaluation mode")
    if enable_gqa:
        key, value = (_repeated_heads(build, x, query.shape[-3] // x.shape[-3]) for x in (key, value))
    query, key, value = (build.computed(x) for x in (query, key, value))
    scores: Value = build.add(Matmul(query, viewed(key, lambda tensor: tensor.transpose(-1, -2))))
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = build.add(Pointwise(scores, (Stage(Function("mul"), Constant((), torch.tensor(factor))),)))
    if is_causal:
        attn_mask = _causal(query.shape[-2], key.shape[-2])
    if attn_mask is not None:
        scores = binary(build, Function("add"), scores, _additive(build, attn_mask))
    return build.add(Matmul(build.add(Softmax(scores, len(scores.shape) - 1, safe=True)), value))


lowers(aten.scaled_dot_product_attention, integers=True)(attention)


def _causal(queries: int, keys: int) -> Constant:
    allowed = torch.ones(queries, keys, dtype=torch.bool).tril()
    return Constant((queries, keys), allowed)


def _additive(build: Builder, mask: Value) -> Value:
    """A mask of what is seen as numbers to add."""
    if mask.dtype is not torch.bool:
        return mask
    if isinstance(mask, Constant):
        return Constant(mask.shape, torch.zeros(mask.shape).masked_fill(~mask.tensor, -math.inf))
    return chosen(build, mask, 0.0, -math.inf)


def _repeated_heads(build: Builder, x: Value, times: int) -> Value:
    *leading, heads, length, width = x.shape
    apart = viewed(x, lambda tensor: tensor.unsqueeze(-3).expand(*leading, heads, times, length, width))
    return build.reshaped(apart, (*leading, heads * times, length, width))
