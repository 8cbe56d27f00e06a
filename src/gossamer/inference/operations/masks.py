"""Comparisons, logic and conversions: tensors of booleans, held as 0 and 1, and of integers.

Masks and indices come with the input; what is computed from integers are comparisons only, so none leaves the range in
which a float32 holds it exactly.
"""

from __future__ import annotations

import torch

from gossamer.inference.operations.functions import Function
from gossamer.inference.operations.pointwise import as_float, binary
from gossamer.inference.program import Value
from gossamer.inference.registry import Builder, Refusal, lowers

__all__ = ["converted"]

aten = torch.ops.aten


def _lower_comparison(name: str) -> None:
    @lowers(getattr(aten, name), integers=True)
    def rule(build: Builder, x: Value, other: Value | float) -> Value:
        return binary(build, Function(name), x, as_float(other))


for _name in ("eq", "ge", "gt", "le", "lt", "ne"):
    _lower_comparison(_name)


def _lower_logic(names: tuple[str, ...], function: str) -> None:
    """On 0 and 1, "and" is a product, "or" a maximum, "exclusive or" an inequality."""

    @lowers(*(getattr(aten, name) for name in names), integers=True)
    def rule(build: Builder, x: Value, other: Value) -> Value:
        return binary(build, Function(function), _mask(x), _mask(other))


_lower_logic(("__and__", "bitwise_and", "logical_and"), "mul")
_lower_logic(("__or__", "bitwise_or", "logical_or"), "maximum")
_lower_logic(("__xor__", "bitwise_xor", "logical_xor"), "ne")


@lowers(aten.bitwise_not, aten.logical_not, integers=True)
def _not(build: Builder, x: Value) -> Value:
    return binary(build, Function("sub"), as_float(1.0), _mask(x))


def _mask(value: Value) -> Value:
    if value.dtype is not torch.bool:
        raise Refusal(f"it is applied to a {value.dtype}; only booleans are combined")
    return value


def converted(build: Builder, x: Value, dtype: torch.dtype) -> Value:
    """The numbers of `x` as another dtype; fractions are not cut off."""
    if dtype is torch.bool and x.dtype is not torch.bool:
        return binary(build, Function("ne"), x, as_float(0.0))
    possible = (torch.float32,) if x.dtype is torch.float32 else (torch.float32, torch.int64, torch.int32, torch.bool)
    if dtype not in possible:
        raise Refusal(f"it converts to {dtype}; only float32 is computed")
    return x
