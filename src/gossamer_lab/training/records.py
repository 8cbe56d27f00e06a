"""Records in files: written with a checksum, and read as what was written, in bounded memory, or refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from gossamer.files import read_plain, write_atomically
from gossamer_lab.training.checksum import sealed, unsealed

__all__ = ["read_record", "record", "write_record"]

_Record = TypeVar("_Record")


def write_record(path: Path, values: Mapping[str, Any]) -> None:
    """Write a record as JSON, with its checksum."""
    write_atomically(path, (json.dumps(sealed(values), indent=2) + "\n").encode())


def read_record(path: Path, largest: int) -> dict[str, Any]:
    """Read a record from a file of at most `largest` bytes. Parsed, it may take some thirty times as many.

    Raises:
        OSError: If the file cannot be read, is no plain file, or larger.
        ValueError: If it is not a record as it was written. Records of earlier versions have no checksum.
    """
    try:
        values = json.loads(read_plain(path, largest))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(values, dict):
        raise ValueError(f"it is {values!r:.80} instead of an object")
    return unsealed(values)


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
