"""The C++ kernel of the proximal step: compiled once on each machine, kept in the user's cache, loaded by ctypes.

The library holds one function on a table of weights (`kernel.cpp`). It knows nothing of shapes or step sizes when it is
compiled, so nothing is ever compiled again: not for another model, not for another learning rate.
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

from gossamer.compiler import load_library
from gossamer.errors import GossamerError

__all__ = ["Kernel", "load_kernel"]

# (address of the table, weights in it, threads) -> 0 where a weight may not be finite
Kernel = Callable[[int, int, int], int]

_SOURCE = Path(__file__).with_name("kernel.cpp")
_STRICT = ["-shared", "-fPIC", "-std=c++17", "-O3", "-fno-math-errno", "-fno-trapping-math"]
# The best first: a compiler may lack OpenMP (one thread then), or not know this processor (its common instructions).
_FLAGS = ([*_STRICT, "-march=native", "-fopenmp"], [*_STRICT, "-march=native"], _STRICT)


@cache
def load_kernel() -> Kernel | None:
    """The kernel; None, after one warning, if it cannot be compiled."""
    try:
        library = load_library(_SOURCE.read_text(), "kernel", _FLAGS, "c++")
    except GossamerError as error:
        warnings.warn(
            f"The proximal step runs without its fused kernel, many times slower on large weights: {error} "
            "Install a C++ compiler (or name it in CXX); `compile=False` silences this warning.",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    step = library.gossamer_step
    step.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32]
    step.restype = ctypes.c_int32
    return step
