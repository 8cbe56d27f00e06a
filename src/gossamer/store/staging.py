"""Files appear whole or not at all: write beside the target, flush to the disk, rename."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gossamer.errors import GossamerError

__all__ = ["staged"]


@contextmanager
def staged(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A place to write the file `path`; it replaces what was there when the block ends without an error.

    The place lies in a fresh folder beside the target, on the same file system, so that the last step is a
    rename, which is atomic. Companion files written into that folder move first: whoever sees the file
    sees its companions too. On an error the folder goes, and the old file is as it was.
    A process that is killed leaves at most the folder `.<name>.*.partial`, which nothing reads.
    """
    # A link keeps pointing where it points: the file behind it is what gets replaced.
    target = Path(os.path.realpath(path))
    try:
        folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".partial", dir=target.parent))
    except OSError as error:
        raise _cannot_write(target, error) from error
    try:
        yield folder / target.name
        _publish(folder, target)
    except OSError as error:
        raise _cannot_write(target, error) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _publish(folder: Path, target: Path) -> None:
    written = sorted(folder.iterdir(), key=lambda file: file.name == target.name)
    for file in written:
        _flush(file)
    for file in written:
        os.replace(file, target.parent / file.name)
    _flush(target.parent)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _cannot_write(target: Path, error: OSError) -> GossamerError:
    return GossamerError(
        f"cannot write {str(target)!r}: {error.strerror or error}. Give a path in an existing folder that you may "
        "write to, with enough space; what was there before is unchanged."
    )
