"""Records with a checksum: what is read is what was written, or it is refused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

__all__ = ["digest", "has_seal", "sealed", "unsealed"]

_KEY = "sha256"


def digest(values: object) -> str:
    """SHA-256 of the JSON text of plain data; the order of keys does not matter."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def sealed(values: Mapping[str, Any]) -> dict[str, Any]:
    """The record with its checksum."""
    return {**values, _KEY: digest(values)}


def has_seal(values: Mapping[str, Any]) -> bool:
    """Whether a record has a checksum."""
    return _KEY in values


def unsealed(values: Mapping[str, Any]) -> dict[str, Any]:
    """The record without its checksum. Records of earlier versions have none.

    Raises:
        ValueError: If the checksum is that of another record.
    """
    record = dict(values)
    if (checksum := record.pop(_KEY, None)) is not None and checksum != digest(record):
        raise ValueError("its checksum differs")
    return record
