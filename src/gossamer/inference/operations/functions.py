"""Functions of one number, or of two: activations and arithmetic, as PyTorch and as a C expression."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from gossamer.inference.kernel import Kernel
from gossamer.inference.source import literal

__all__ = ["BINARY", "UNARY", "Function"]

UNARY: dict[str, Callable[..., Tensor]] = {
    "abs": torch.abs,
    "clamp": torch.clamp,
    "cos": torch.cos,
    "elu": functional.elu,
    "erf": torch.erf,
    "exp": torch.exp,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "hardsigmoid": functional.hardsigmoid,
    "hardswish": functional.hardswish,
    "leaky_relu": functional.leaky_relu,
    "log": torch.log,
    "neg": torch.neg,
    "pow": torch.pow,
    "reciprocal": torch.reciprocal,
    "relu": torch.relu,
    "rsqrt": torch.rsqrt,
    "sigmoid": torch.sigmoid,
    "silu": functional.silu,
    "sin": torch.sin,
    "softplus": functional.softplus,
    "sqrt": torch.sqrt,
    "square": torch.square,
    "tanh": torch.tanh,
}


def _as_number(compare: Callable[..., Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, y: compare(x, y).float()


BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "div": torch.div,
    "eq": _as_number(torch.eq),
    "ge": _as_number(torch.ge),
    "gt": _as_number(torch.gt),
    "le": _as_number(torch.le),
    "lt": _as_number(torch.lt),
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "mul": torch.mul,
    "ne": _as_number(torch.ne),
    "rdiv": lambda x, y: y / x,
    "rsub": lambda x, y: y - x,
    "sub": torch.sub,
}

# What C writes without a function.
_EXPRESSIONS = {
    "neg": "-{x}",
    "reciprocal": "1.0f / {x}",
    "square": "{x} * {x}",
    "add": "{x} + {y}",
    "sub": "{x} - {y}",
    "rsub": "{y} - {x}",
    "mul": "{x} * {y}",
    "div": "{x} / {y}",
    "rdiv": "{y} / {x}",
}

_SWAPPED = {"sub": "rsub", "rsub": "sub", "div": "rdiv", "rdiv": "div", "lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}


@dataclass(frozen=True)
class Function:
    """A function by name, with numbers that it depends on."""

    name: str
    parameters: tuple[float, ...] = ()

    def apply(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        """The result, by PyTorch."""
        if other is None:
            return UNARY[self.name](x, *self.parameters)
        return BINARY[self.name](x, other)

    def swapped(self) -> Function:
        """The same function of two numbers in the other order."""
        return Function(_SWAPPED.get(self.name, self.name))

    @property
    def is_expression(self) -> bool:
        """Whether C writes it without a function."""
        return self.name in _EXPRESSIONS

    def expression(self, kernel: Kernel, x: str, other: str = "", prefix: str | None = None) -> str:
        """The C expression for the variable `x` (and the expression `other`)."""
        if self.is_expression:
            return _EXPRESSIONS[self.name].format(x=x, y=other)
        arguments = [x, *([other] if other else []), *(literal(number) for number in self.parameters)]
        return f"{kernel.helper(self.name, prefix)}({', '.join(arguments)})"
