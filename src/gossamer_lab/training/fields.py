"""Dataclass fields that carry their documentation, their constraint and their command-line option.

Checks, `--help` and class documentation are derived from one `setting(...)` per field.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, TypeVar

__all__ = [
    "COUNT",
    "FLAG",
    "FRACTION",
    "HALF",
    "NAME",
    "NON_NEGATIVE",
    "PART",
    "POSITIVE",
    "SEED",
    "SHARE",
    "Rule",
    "Setting",
    "check",
    "documented",
    "percentage",
    "setting",
    "settings_of",
]

_T = TypeVar("_T")
_KEY = "setting"


@dataclass(frozen=True)
class Rule:
    """A constraint on a value: a predicate, and how an error states it."""

    holds: Callable[[Any], bool]
    text: str


@dataclass(frozen=True)
class Setting:
    """What a field declares besides its type and default.

    Attributes:
        help: Description, for `--help` and the class documentation.
        rule: Constraint on the value; None for none. A default of None is always allowed.
        is_option: Whether it is an option of the command.
        default: The default as `--help` states it, where the command settles it later.
        flag: The option's name, where it is not that of the field.
        parse: Function that reads the option, where it is not a plain number or string.
    """

    help: str
    rule: Rule | None = None
    is_option: bool = False
    default: str | None = None
    flag: str | None = None
    parse: Callable[[str], Any] | None = None


def setting(
    text: str,
    rule: Rule | None = None,
    *,
    option: bool = False,
    default: str | None = None,
    flag: str | None = None,
    parse: Callable[[str], Any] | None = None,
) -> dict[str, Setting]:
    """Return the metadata of a dataclass field; see `Setting`."""
    return {_KEY: Setting(text, rule, option, default, flag, parse)}


def settings_of(cls: type) -> dict[str, Setting]:
    """Return what the fields of a dataclass declare, by field name."""
    return {field.name: field.metadata[_KEY] for field in fields(cls)}


def check(instance: Any) -> None:
    """Raise `GossamerError` for the first field whose value breaks its rule."""
    for field in fields(instance):
        rule, value = field.metadata[_KEY].rule, getattr(instance, field.name)
        if rule is None or (value is None and field.default is None) or rule.holds(value):
            continue
        from gossamer.errors import GossamerError  # imports torch, which `gossamer --help` does without

        raise GossamerError(f"`{field.name}` {rule.text}; received {value!r}.")


def documented(cls: type[_T]) -> type[_T]:
    """Append the descriptions of the fields to the docstring of a dataclass."""
    lines = [f"        {name}: {declared.help}" for name, declared in settings_of(cls).items()]
    cls.__doc__ = "\n".join([(cls.__doc__ or "").rstrip(), "", "    Attributes:", *lines, "    "])
    return cls


def percentage(text: str) -> float:
    """Read `5%` or `0.05`."""
    number = text.strip()
    return float(number[:-1]) / 100 if number.endswith("%") else float(number)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


NAME = Rule(lambda value: isinstance(value, str) and value != "", "must be a non-empty string")
FLAG = Rule(lambda value: isinstance(value, bool), "must be true or false")
COUNT = Rule(lambda value: _is_integer(value) and value >= 1, "must be an integer, at least 1")
SEED = Rule(lambda value: _is_integer(value) and 0 <= value < 2**32, "must be an integer from 0 to 2^32 - 1")
NON_NEGATIVE = Rule(lambda value: _is_number(value) and value >= 0, "must be a finite number, at least 0")
POSITIVE = Rule(lambda value: _is_number(value) and value > 0, "must be a finite number above 0")
HALF = Rule(lambda value: _is_number(value) and 0 <= value <= 0.5, "must be a number from 0 to 1/2")
PART = Rule(lambda value: _is_number(value) and 0 < value <= 1, "must be above 0 and at most 1 (100%)")
SHARE = Rule(lambda value: _is_number(value) and 0 <= value <= 1, "must be a number from 0 to 1")
FRACTION = Rule(lambda value: _is_number(value) and 0 <= value < 1, "must be at least 0 and below 1")
