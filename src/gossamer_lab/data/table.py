"""Text tables: one sample per line, the class in the last column."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gossamer_lab.data.files import Content

__all__ = ["parse_table"]


def parse_table(content: Content, features: int, delimiter: str | None = None) -> NDArray[np.float64]:
    """Parse a file with `features` finite numbers and a label in every line."""
    try:
        lines = content.data.decode("ascii").splitlines()
        table = np.loadtxt(lines, delimiter=delimiter, ndmin=2)
    except ValueError as error:
        raise content.error(f"is not a table of numbers: {error}") from error
    if table.shape[1] != features + 1:
        raise content.error(f"has {table.shape[1]} columns; {features + 1} are expected")
    if not np.isfinite(table).all():
        raise content.error("has values that are not finite")
    return table
