"""Atomic writing: a file is there whole, or as it was before, whenever the process or the machine stops.

Write beside the target, flush to the disk, rename.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gossamer.errors import GossamerError

__all__ = ["abandoned", "append_line", "check_can_write", "flush", "staged", "write_atomically"]


@contextmanager
def staged(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path for the file `path`; it replaces what was there when the block ends without an error.

    The temporary file lies in a new folder beside the target, on the same file system, so that the last step is a
    rename, which is atomic. Companion files written into that folder are moved first: whoever sees the file sees its
    companions too. On an error the folder is removed, and the old file is unchanged. A process that is killed leaves
    at most that folder (see `abandoned`), which nothing reads.
    """
    target, folder = _begin(path)
    try:
        yield folder / target.name
        _publish(folder, target)
    except OSError as error:
        raise _cannot_write(target, error) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def check_can_write(path: str | os.PathLike[str]) -> None:
    """An error if `staged(path)` could not begin: before work is done whose result would be lost."""
    _, folder = _begin(path)
    folder.rmdir()


def write_atomically(path: str | os.PathLike[str], content: bytes) -> None:
    """Write `content` to the file `path`."""
    with staged(path) as place:
        place.write_bytes(content)


def append_line(path: Path, line: str) -> None:
    """Append a line to the file `path`, and wait until it is on the disk."""
    created = not path.exists()
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")
    flush(path)
    if created:
        flush(path.parent)


def flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    if path.is_dir() and os.name != "posix":  # a folder cannot be opened there
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def abandoned(path: Path) -> list[Path]:
    """The temporary folders that killed processes have left while they wrote `path`."""
    return sorted(path.parent.glob(f".{path.name}.*.partial")) if path.parent.is_dir() else []


def _begin(path: str | os.PathLike[str]) -> tuple[Path, Path]:
    """The file to write, and a new folder beside it."""
    # Follow a symbolic link: the file that it points to is replaced, and the link stays.
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise GossamerError(f"cannot write {str(target)!r}: it is not a plain file. Give the path of a file.")
    try:
        return target, Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".partial", dir=target.parent))
    except OSError as error:
        raise _cannot_write(target, error) from error


def _publish(folder: Path, target: Path) -> None:
    written = sorted(folder.iterdir(), key=lambda file: file.name == target.name)
    for file in written:
        flush(file)
    for file in written:
        os.replace(file, target.parent / file.name)
    flush(target.parent)


def _cannot_write(target: Path, error: OSError) -> GossamerError:
    return GossamerError(
        f"cannot write {str(target)!r}: {error.strerror or error}. Give a path in an existing folder that you may "
        "write to, with enough space; what was there before is unchanged."
    )
