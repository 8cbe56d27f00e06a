"""The machine that code is tuned to."""

from __future__ import annotations

import os
from dataclasses import dataclass

from gossamer.compiler import Compiler, predefined_macros

__all__ = ["Machine"]


@dataclass(frozen=True)
class Machine:
    """What the code depends on.

    Attributes:
        lanes: Samples in a vector.
        vectors: Neighbouring positions of one sample in a vector; the kernels choose.
        registers: For vectors.
        cache: Bytes of the first-level cache.
    """

    lanes: int
    vectors: tuple[int, ...]
    registers: int
    cache: int

    @classmethod
    def here(cls, compiler: Compiler) -> Machine:
        """This machine, as its compiler sees it."""
        macros = predefined_macros(compiler, ["-march=native"]) or predefined_macros(compiler, ["-mcpu=native"])
        cache = _first_level_cache()
        if "__AVX512VL__" in macros:
            return cls(16, (8, 16), 32, cache)
        if "__AVX__" in macros:
            return cls(8, (8,), 16, cache)
        return cls(4, (4,), 32 if "__aarch64__" in macros else 16, cache)


def _first_level_cache() -> int:
    try:
        size = os.sysconf("SC_LEVEL1_DCACHE_SIZE")
    except (ValueError, OSError):
        size = 0
    return size if size > 0 else 32 * 1024
