"""Which ATen operator is lowered by which rule.

A rule takes the lowering and the operator's arguments, in the order and under the names of its schema, with a `Value`
for each tensor. It returns the value of the result, or a tuple of values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

from torch._ops import OpOverloadPacket

from gossamer.inference.program import Constant, Operation, Result, Value

__all__ = ["PROMOTES", "RULES", "TAKES_INTEGERS", "Builder", "Refusal", "constant_of", "lowers", "optional_constant"]


class Refusal(Exception):  # noqa: N818 - not an error of its own: the lowering turns it into one that names the module
    """An operator that cannot be lowered; the message completes the sentence "it cannot be lowered: ..."."""


class Builder(ABC):
    """The operations of a program under construction."""

    @abstractmethod
    def add(self, operation: Operation) -> Result:
        """Append an operation; its result."""

    @abstractmethod
    def computed(self, value: Value) -> Value:
        """`value`, copied into memory if it is a constant: most operations read only what lies there."""

    @abstractmethod
    def reshaped(self, value: Value, shape: tuple[int, ...]) -> Value:
        """`value` in another shape: an alias if its strides allow, a copy otherwise."""


Rule = Callable[..., Any]
_AnyRule = TypeVar("_AnyRule", bound=Rule)

RULES: dict[OpOverloadPacket, Rule] = {}
TAKES_INTEGERS: set[OpOverloadPacket] = set()
PROMOTES: set[OpOverloadPacket] = set()


def lowers(
    *operators: OpOverloadPacket, integers: bool = False, promotes: bool = False
) -> Callable[[_AnyRule], _AnyRule]:
    """Register a rule for these operators.

    Args:
        operators: ATen operators.
        integers: Whether it takes integers and booleans as well.
        promotes: Whether it does where its result is a float32, to which PyTorch converts them first.
    """

    def register(rule: _AnyRule) -> _AnyRule:
        for operator in operators:
            assert operator not in RULES, operator
            RULES[operator] = rule
            if integers:
                TAKES_INTEGERS.add(operator)
            if promotes:
                PROMOTES.add(operator)
        return rule

    return register


def constant_of(value: Value, what: str) -> Constant:
    """`value`, which must not depend on the input."""
    if not isinstance(value, Constant):
        raise Refusal(f"its {what} depends on the input")
    return value


def optional_constant(value: Value | None, what: str) -> Constant | None:
    """As `constant_of`; None stays None."""
    return None if value is None else constant_of(value, what)
