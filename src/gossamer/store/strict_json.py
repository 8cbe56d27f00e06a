"""Strict parsing of untrusted JSON: unambiguous, finite numbers, the expected types, or an error."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, TypeAlias

from gossamer.errors import GossamerError

__all__ = ["Json", "dump", "fields", "integer", "mapping", "parse", "sequence", "text"]

Json: TypeAlias = Any

LARGEST_INTEGER = 2**63 - 1
_MOST_PARTS = 2**18


def parse(source: str) -> Json:
    """What `source` says; a GossamerError for text that is not JSON, or says nan, infinity or one name twice.

    An empty list or object takes two characters and up to 64 bytes of memory, so their number is bounded.
    """
    if (parts := source.count("[") + source.count("{")) > _MOST_PARTS:
        raise GossamerError(f"it has {parts} lists and objects, and {_MOST_PARTS} are allowed")
    try:
        return json.loads(
            source, object_pairs_hook=_without_repeats, parse_constant=_refuse_constant, parse_float=_finite
        )
    except RecursionError:
        raise GossamerError("it is nested too deeply") from None
    except GossamerError:
        raise
    except ValueError as error:
        raise GossamerError(f"it is not JSON ({error})") from None


def dump(value: Json) -> str:
    """`value` as compact JSON; a GossamerError when `parse` would not give it back."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise GossamerError(f"it cannot be written as JSON ({error})") from None


def fields(value: Json, what: str, names: tuple[str, ...]) -> tuple[Json, ...]:
    """The values of an object that has exactly these `names`, in their order."""
    members = mapping(value, what)
    if set(members) != set(names):
        raise GossamerError(f"{what} has the fields {_short(sorted(members))} instead of {sorted(names)}")
    return tuple(members[name] for name in names)


def mapping(value: Json, what: str) -> Mapping[str, Json]:
    """`value`, which must be an object."""
    if not isinstance(value, dict):
        raise GossamerError(f"{what} is {_short(value)} instead of an object")
    return value


def sequence(value: Json, what: str) -> list[Json]:
    """`value`, which must be a list."""
    if not isinstance(value, list):
        raise GossamerError(f"{what} is {_short(value)} instead of a list")
    return value


def text(value: Json, what: str) -> str:
    """`value`, which must be a string."""
    if not isinstance(value, str):
        raise GossamerError(f"{what} is {_short(value)} instead of a string")
    return value


def integer(value: Json, what: str, *, lowest: int = -LARGEST_INTEGER) -> int:
    """`value`, which must be an integer that fits into 64 bits, and not below `lowest`."""
    if type(value) is not int or not lowest <= value <= LARGEST_INTEGER:
        raise GossamerError(f"{what} is {_short(value)} instead of an integer from {lowest} to {LARGEST_INTEGER}")
    return value


def _without_repeats(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise GossamerError("it names a field twice")
    return members


def _refuse_constant(name: str) -> float:
    raise GossamerError(f"it contains {name}")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise GossamerError(f"it contains the number {_short(digits)}")
    return number


def _short(value: object) -> str:
    """A value of an untrusted file for an error message: never longer than a line."""
    said = repr(value)
    return said if len(said) <= 80 else f"{said[:77]}..."
