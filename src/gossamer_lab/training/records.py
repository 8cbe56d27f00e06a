"""Records of a file as dataclasses: the fields and types are those of the class, whatever the file says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from types import UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

__all__ = ["record"]

_Record = TypeVar("_Record")


def record(cls: type[_Record], values: Mapping[str, Any]) -> _Record:
    """An instance of a dataclass with these values.

    Raises:
        TypeError: If a field is missing or unknown, or its value is of another type.
    """
    made = cls(**values)
    hints = get_type_hints(cls)
    for field in fields(made):  # type: ignore[arg-type]
        value = getattr(made, field.name)
        if not _is_of(value, hints[field.name]):
            raise TypeError(f"{field.name!r} is {value!r:.80}")
    return made


def _is_of(value: object, kind: Any) -> bool:
    """Whether a value that was read from JSON is of this type; a whole number is a float, too."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return any(_is_of(value, each) for each in arguments)
    if origin is Literal:
        return value in arguments
    if origin is dict:
        return isinstance(value, dict) and all(_is_of(each, arguments[1]) for each in value.values())
    if kind is Any:
        return True
    return type(value) in ((float, int) if kind is float else (kind,))
