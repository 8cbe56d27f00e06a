"""The published bytes inside of files that anyone may have made: packed files and archives, read in bounded time.

Whatever a file claims, no more than the published size of a part is unpacked, and no more members are looked at than
published archives have.
"""

from __future__ import annotations

import io
import lzma
import os
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO, Protocol

from gossamer_lab.data.sources import Part

__all__ = ["UNREADABLE", "unpacked"]

# What damaged files raise. ValueError is that of names that are not UTF-8, too.
UNREADABLE = (
    OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile, RuntimeError, ValueError,
    MemoryError,
)  # fmt: skip

# More memory than any .xz file of a data set asks for; its header could ask for any amount.
_XZ_MEMORY = 1 << 28
# Others have headers that ask for memory.
_ZIP_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# Published archives have ten members at most. An entry in the directory of a zip archive has 46 bytes or more.
_MOST_MEMBERS = 500
_LARGEST_DIRECTORY = 1 << 16
_CHUNK = 1 << 16


class _Stream(Protocol):
    def read(self, size: int, /) -> bytes: ...


def unpacked(path: Path, parts: list[Part], limit: int) -> dict[str, bytes]:
    """The bytes of these parts of one file, by their names; one more than published if there are more.

    Args:
        path: A plain or packed file of one part, or an archive.
        parts: The parts to read.
        limit: Bytes that neither the file nor the uncompressed archive exceeds.
    """
    if path.stat().st_size > limit:
        raise OSError(f"it is larger than {limit:,} bytes, which no published file is")
    if path.name.endswith(".tar.gz"):
        return _from_tar(path, parts, limit)
    if path.suffix == ".zip":
        return _from_zip(path, parts)
    return {part.name: _from_file(path, part) for part in parts}


def _from_file(path: Path, part: Part) -> bytes:
    with path.open("rb") as file:
        if path.suffix == ".gz":
            return _limited(_gzip(file), part)
        if path.suffix == ".xz":
            decompressor = lzma.LZMADecompressor(memlimit=_XZ_MEMORY)
            return decompressor.decompress(file.read(2 * part.size + _CHUNK), max_length=part.size + 1)
        return _limited(file, part)


def _from_zip(path: Path, parts: list[Part]) -> dict[str, bytes]:
    data = {}
    with _Frugal(path) as file, zipfile.ZipFile(file) as archive:
        file.largest = None
        wanted = {part.name: part for part in parts}
        for member in archive.infolist():
            part = wanted.pop(member.filename.rpartition("/")[2], None)  # each once: entries may share their bytes
            if part is None:
                continue
            if member.compress_type not in _ZIP_METHODS:
                raise zipfile.BadZipFile(f"{part.name} is packed by method {member.compress_type}")
            with archive.open(member) as stream:
                data[part.name] = _limited(stream, part)
    return data


def _from_tar(path: Path, parts: list[Part], limit: int) -> dict[str, bytes]:
    """Read the parts in one pass: seeking back would uncompress everything again."""
    wanted = {part.name: part for part in parts}
    data = {}
    with path.open("rb") as file, tarfile.open(fileobj=_Bounded(_gzip(file), limit), mode="r|") as archive:
        for number, member in enumerate(archive, start=1):
            if number > _MOST_MEMBERS:
                raise tarfile.TarError(f"it has more than {_MOST_MEMBERS} members")
            part = wanted.get(member.name.rpartition("/")[2])
            stream = archive.extractfile(member) if part and member.isfile() else None
            if part and stream:
                data[part.name] = _limited(stream, part)
    return data


def _gzip(file: BinaryIO) -> io.BufferedReader:
    return io.BufferedReader(_GzipMember(file), _CHUNK)


class _GzipMember(io.RawIOBase):
    """The uncompressed bytes of a gzip file of one member: Python's own reader goes through millions of empty ones."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._decompressor = file, zlib.decompressobj(zlib.MAX_WBITS | 16)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
        data = b""
        while not data and not self._decompressor.eof:
            packed = self._decompressor.unconsumed_tail or self._file.read(_CHUNK)
            if not packed:
                raise EOFError("it ends in the middle of its data")
            data = self._decompressor.decompress(packed, len(buffer))
        buffer[: len(data)] = data
        return len(data)


class _Frugal(io.FileIO):
    """A file of which no more than `largest` bytes are read at once: `ZipFile` reads the whole directory to open it."""

    largest: int | None = _LARGEST_DIRECTORY + 22  # and the record at its end, with a comment as long

    def __init__(self, path: Path) -> None:
        super().__init__(path, "rb")

    def read(self, size: int | None = -1, /) -> bytes:
        left = os.fstat(self.fileno()).st_size - self.tell()
        wanted = left if size is None or size < 0 else min(size, left)
        if self.largest is not None and wanted > self.largest:
            raise zipfile.BadZipFile(f"its directory has {wanted:,} bytes, which no published archive has")
        return super().read(size) or b""


class _Bounded(io.RawIOBase):
    """A stream that ends with an error after `limit` bytes: headers inside an archive may claim any length."""

    def __init__(self, stream: _Stream, limit: int) -> None:
        self._stream, self._left = stream, limit

    def read(self, size: int = -1, /) -> bytes:
        data = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise OSError("it unpacks to more than the published files")
        return data


def _limited(stream: _Stream, part: Part) -> bytes:
    """Read at most one byte more than expected, so that a decompression bomb does no harm."""
    return stream.read(part.size + 1)
