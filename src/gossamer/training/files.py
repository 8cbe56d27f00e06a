"""Writing a file so that it is there whole, or as it was before, whenever the process or the machine stops."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["PARTIAL", "write_atomically"]

# The ending of a file that is still being written; what a stopped process leaves behind is overwritten the next time.
PARTIAL = ".partial"


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside ``path``, bring it to the disk, then put it in place in one move."""
    partial = path.with_name(path.name + PARTIAL)
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    """Bring the move itself to the disk, where the system lets a directory be opened."""
    if os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
