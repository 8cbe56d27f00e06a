"""Atomic writing: a file is there whole, or as it was before, whenever the process or the machine stops.

Write beside the target, flush to the disk, rename. Reading takes plain files only, and no more than is asked for.
"""

from __future__ import annotations

import glob
import os
import platform
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from gossamer.errors import GossamerError

__all__ = [
    "NotPlainError", "abandoned", "append_line", "check_can_write", "flush", "lock_folder", "open_plain", "read_plain",
    "scratch_folder", "staged", "write_atomically",
]  # fmt: skip


class NotPlainError(OSError):
    """Something that is not a plain file, or a larger one than expected, lies where a file is to be read."""


def open_plain(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a plain file to read it.

    Raises:
        NotPlainError: If it is a folder, a pipe or a device: to read one could wait for ever, or never end.
    """
    # To open a pipe without this flag waits for one who writes to it. It changes nothing for plain files.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotPlainError("it is not a plain file")
    return os.fdopen(descriptor, "rb")


def read_plain(path: str | os.PathLike[str], largest: int) -> bytes:
    """The content of a plain file of at most `largest` bytes.

    Raises:
        NotPlainError: If it is not plain, or larger.
    """
    with open_plain(path) as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise NotPlainError(f"it has more than {largest:,} bytes, the most that such a file needs")
    return content


@contextmanager
def staged(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path for the file `path`; it replaces what was there when the block ends without an error.

    The temporary file lies in a new folder beside the target, on the same file system, so that the last step is a
    rename, which is atomic. Companion files written into that folder are moved first: whoever sees the file sees its
    companions too. On an error the folder is removed, and the old file is unchanged. A process that is killed leaves
    at most that folder (see `abandoned`), which nothing reads, and which the next one that writes the file removes.
    """
    target = _target(path)
    with _folder_beside(target) as folder:
        try:
            yield folder / target.name
            _publish(folder, target)
        except OSError as error:
            raise _cannot_write(target, error) from error


def check_can_write(path: str | os.PathLike[str]) -> None:
    """An error if `staged(path)` could not begin: before work is done whose result would be lost."""
    with _folder_beside(_target(path)):
        pass


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
    """The temporary folders beside `path`: of processes that were killed while they wrote it, or that write it now."""
    return sorted(path.parent.glob(f".{glob.escape(path.name)}.*.partial")) if path.parent.is_dir() else []


def lock_folder(path: Path) -> int:
    """Lock the folder at `path`; return its descriptor. The lock ends when that is closed, or with the process.

    Raises:
        BlockingIOError: If another descriptor holds the lock.
        FileNotFoundError: If there is no such folder.
    """
    import fcntl  # not on Windows, where folders cannot be locked

    while True:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever held the lock before may have removed the folder, and a third may have made it again.
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _target(path: str | os.PathLike[str]) -> Path:
    """The file to write."""
    # Follow a symbolic link: the file that it points to is replaced, and the link stays.
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise GossamerError(f"cannot write {str(target)!r}: it is not a plain file. Give the path of a file.")
    return target


@contextmanager
def scratch_folder(parent: Path, name: str) -> Iterator[Path]:
    """A temporary folder in `parent`, locked as long as it is in use.

    Those of the same name that are not locked were left by processes that were killed, and are removed.
    """
    if os.name == "posix":
        _remove_abandoned(parent / name)
    folder, descriptor = _new_folder(parent, name)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if descriptor is not None:
            os.close(descriptor)


@contextmanager
def _folder_beside(target: Path) -> Iterator[Path]:
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(scratch_folder(target.parent, target.name))
        except OSError as error:
            raise _cannot_write(target, error) from error
        yield folder


def _new_folder(parent: Path, name: str) -> tuple[Path, int | None]:
    while True:
        prefix = f".{name}.{_machine()}."
        folder = Path(tempfile.mkdtemp(prefix=prefix, suffix=".partial", dir=parent))
        if os.name != "posix":
            return folder, None
        try:
            return folder, lock_folder(folder)
        except (BlockingIOError, FileNotFoundError):  # another process took it for abandoned before it was locked
            continue
        except OSError:  # a file system without locks: nobody can lock the folder to remove it either
            return folder, None


def _machine() -> str:
    """The name of this machine. On network file systems a lock may hold on one machine only."""
    return re.sub(r"[^\w-]", "-", platform.node())[:32]


def _remove_abandoned(target: Path) -> None:
    own = f".{target.name}.{_machine()}."
    for folder in (folder for folder in abandoned(target) if folder.name.startswith(own)):
        with suppress(OSError):  # in use, or of another user
            descriptor = lock_folder(folder)
            shutil.rmtree(folder, ignore_errors=True)
            os.close(descriptor)


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
