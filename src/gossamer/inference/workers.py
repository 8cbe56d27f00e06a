"""The threads among which batches are split: one set for all networks of a process (`workers.c`)."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

from gossamer.compiler import load_library

__all__ = ["run_in_threads"]

_SOURCE = Path(__file__).with_name("workers.c")
_FLAGS = (["-shared", "-fPIC", "-std=gnu11", "-O2", "-pthread"],)


@cache
def run_in_threads() -> int:
    """The address of `workers_run`, which the driver of a compiled network calls."""
    address = ctypes.cast(load_library(_SOURCE.read_text(), "workers", _FLAGS).workers_run, ctypes.c_void_p).value
    assert address is not None
    return address
