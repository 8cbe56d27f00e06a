"""Memory that starts at a cache line, and how far apart threads have to write."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["LINE", "aligned", "far_apart", "whole_lines"]

LINE = 64  # bytes
_FETCHED_AHEAD = 8192


def aligned(count: int) -> npt.NDArray[np.uint8]:
    """So many zero bytes."""
    memory = np.zeros(count + LINE, dtype=np.uint8)
    start = -memory.ctypes.data % LINE
    return memory[start : start + count]


def whole_lines(count: int) -> int:
    """`count` bytes, rounded up."""
    return -(-count // LINE) * LINE


def far_apart(count: int) -> int:
    """Bytes from one block of `count` bytes to the next, where each is written by a thread of its own.

    A core that reads to the end of its block fetches some lines beyond it as well, and takes them away from the core
    that is writing there. To get each of them back takes as long as some thousand multiply-adds.
    """
    return whole_lines(count) + _FETCHED_AHEAD
