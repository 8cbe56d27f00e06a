"""Peak memory of a call, as counted by the operating system."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

__all__ = ["peak_extra_bytes"]

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def peak_extra_bytes(call: Callable[[], object]) -> int | None:
    """Return the peak resident memory during a call above the memory before it; None if the system does not tell."""
    try:
        ctypes.CDLL(None).malloc_trim(0)  # freed memory that the process keeps would hide what the call uses
        _CLEAR.write_text("5")  # reset the peak
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
