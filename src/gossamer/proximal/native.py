"""The C++ kernel of the proximal step: compiled once on each machine, kept in the user's cache, loaded by ctypes.

The library has one function on a table of weights (`kernel/kernel.cpp`). Shapes and step sizes are arguments, so it is
compiled once for all models and learning rates.
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

from gossamer.compiler import load_library
from gossamer.errors import GossamerError

__all__ = ["Kernel", "UnitKernel", "load_kernel", "load_unit_kernel"]

# (address of the table, address of the steps, weights in them, threads) -> 0 where a weight may not be finite
Kernel = Callable[[int, int, int, int], int]
# (tensors, steps, their number, parts, their number, groups, threads); addresses of the records of kernel/units.hpp
UnitKernel = Callable[[int, int, int, int, int, int, int], int]

_SOURCES = Path(__file__).with_name("kernel")
_STRICT = ["-shared", "-fPIC", "-std=c++17", "-O3", "-fno-math-errno", "-fno-trapping-math"]
_NATIVE = [*_STRICT, "-march=native"]
# Best first. Compilers avoid 512-bit vectors unless told to, and only x86 has them; a compiler may lack OpenMP (then
# one thread is used) or may not know this processor.
_FLAGS = ([*_NATIVE, "-mprefer-vector-width=512", "-fopenmp"], [*_NATIVE, "-fopenmp"], _NATIVE, _STRICT)


@cache
def load_kernel() -> Kernel | None:
    """The kernel; None, with one warning, if it cannot be compiled."""
    try:
        library = _library()
    except GossamerError as error:
        warnings.warn(
            f"The proximal step runs without its fused kernel, many times slower on large weights: {error} "
            "Install a C++ compiler (or name it in CXX); `compile=False` silences this warning.",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    step = library.gossamer_step
    step.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32]
    step.restype = ctypes.c_int32
    return step


@cache
def load_unit_kernel() -> UnitKernel | None:
    """The kernel for terms on units, from the same library; None if it cannot be compiled."""
    if load_kernel() is None:
        return None
    step = _library().gossamer_unit_step
    pointer, size = ctypes.c_void_p, ctypes.c_int64
    step.argtypes = [pointer, pointer, size, pointer, size, pointer, ctypes.c_int32]
    step.restype = ctypes.c_int32
    return step


def _library() -> ctypes.CDLL:
    headers = {header.name: header.read_text() for header in _SOURCES.glob("*.hpp")}
    return load_library((_SOURCES / "kernel.cpp").read_text(), "kernel", _FLAGS, "c++", headers)
