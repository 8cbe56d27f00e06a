"""The machine that code is tuned to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gossamer.compiler import Compiler, predefined_macros

__all__ = ["Machine"]

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


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
    """Of data; 32 KiB where the system does not say."""
    for folder in sorted(_CACHES.glob("index*")):
        try:
            level, kind, size = ((folder / name).read_text().strip() for name in ("level", "type", "size"))
        except OSError:
            continue
        if level == "1" and kind != "Instruction" and size.endswith("K") and size[:-1].isdigit():
            return int(size[:-1]) * 1024
    return 32 * 1024
