"""Memory that starts at a cache line."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["LINE", "aligned", "whole_lines"]

LINE = 64  # bytes


def aligned(count: int) -> npt.NDArray[np.uint8]:
    """So many zero bytes."""
    memory = np.zeros(count + LINE, dtype=np.uint8)
    start = -memory.ctypes.data % LINE
    return memory[start : start + count]


def whole_lines(count: int) -> int:
    """`count` bytes, rounded up."""
    return -(-count // LINE) * LINE
