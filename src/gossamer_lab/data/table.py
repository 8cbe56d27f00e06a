"""Text with the same number of numbers in every line, the last of which is the class."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gossamer_lab.data.files import Content

__all__ = ["parse_table"]


def parse_table(content: Content, features: int, delimiter: str | None = None) -> NDArray[np.float64]:
    """Return the lines of a file as rows: ``features`` finite numbers and the label."""
    try:
        lines = content.data.decode("ascii").splitlines()
        table = np.loadtxt(lines, delimiter=delimiter, ndmin=2)
    except ValueError as error:
        raise content.refusal(f"is not a table of numbers: {error}") from error
    if table.shape[1] != features + 1:
        raise content.refusal(f"has {table.shape[1]} numbers in a line, where {features + 1} belong")
    if not np.isfinite(table).all():
        raise content.refusal("has values that are not finite")
    return table
