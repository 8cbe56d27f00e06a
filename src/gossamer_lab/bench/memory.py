"""The memory that a call needs for a while, from the operating system's own count."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

__all__ = ["peak_extra_bytes"]

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def peak_extra_bytes(call: Callable[[], object]) -> int | None:
    """Peak of the resident memory during the call, above what it was before; nothing where the system does not say."""
    try:
        ctypes.CDLL(None).malloc_trim(0)  # what the process keeps for later use would hide what the call uses
        _CLEAR.write_text("5")  # forget the peak so far
        before = _status("VmRSS")
        call()
        return max(0, _status("VmHWM") - before)
    except (OSError, AttributeError):
        return None


def _status(key: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(key):
            return 1024 * int(line.split()[1])
    raise OSError(f"no {key} in {_STATUS}")
