"""Finding the files of a data set on this machine, and reading what is in them."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gossamer.errors import GossamerError
from gossamer_lab.data.sources import Part, Source

__all__ = ["Content", "FileState", "cache", "find", "inspect", "read", "roots"]

# Where Debian's package dataset-fashion-mnist puts its folder `fashion-mnist`: the tests of Debian's package pytorch
# (debian/tests) copy the files from there.
_SYSTEM = Path("/usr/share/datasets")

_COMPRESSIONS = ("", ".gz", ".xz")
_UNREADABLE = (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile, RuntimeError)


class _Stream(Protocol):
    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True)
class Content:
    """The uncompressed bytes of one part, and the file that they came from."""

    source: Source
    part: Part
    path: Path
    data: bytes

    @property
    def problem(self) -> str | None:
        """What is wrong with the bytes; None if they are the published ones."""
        size = len(self.data)
        if size > self.part.size:
            return f"holds more than the {self.part.size:,} bytes of {self.part.name}"
        if size < self.part.size:
            return f"holds {size:,} bytes where {self.part.name} has {self.part.size:,}"
        # Hashing takes about a tenth of the time of reading, so it is done at every load.
        if hashlib.sha256(self.data).hexdigest() != self.part.sha256:
            return f"does not hold {self.part.name} of {self.source.name} as it was published: its SHA-256 differs"
        return None

    def refusal(self, problem: str) -> GossamerError:
        """The error that says what is wrong with this file."""
        return _refusal(self.source, self.path, problem)


@dataclass(frozen=True)
class FileState:
    """How one file of a data set is found: ``state`` is ok, missing or wrong; ``problem`` is what `read` would say."""

    name: str
    state: str
    path: Path | None = None
    problem: str | None = None


def cache() -> Path:
    """The folder of this user for data that can be fetched again."""
    import pooch  # type: ignore[import-untyped]

    return Path(pooch.os_cache("gossamer"))


def roots(folder: Path | None = None) -> list[Path]:
    """The data folders that are looked into, in this order."""
    named = os.environ.get("GOSSAMER_DATA")
    return [
        *([folder] if folder is not None else []),
        *([Path(named).expanduser()] if named else []),
        cache(),
        _SYSTEM,
    ]


def find(source: Source, places: Sequence[Path]) -> dict[str, Path]:
    """The file that holds each part, by name of the part; a part that is nowhere is left out.

    Parts may come from different places: each is known by its checksum, so they belong together all the same.
    """
    found = {}
    for part in source.parts:
        path = next((path for path in _candidates(source, part, places) if path.is_file()), None)
        if path is not None:
            found[part.name] = path
    return found


def read(source: Source, folder: Path | None = None) -> dict[str, Content]:
    """Read all parts, by name, and make sure that they are the published ones."""
    places = roots(folder)
    found = find(source, places)
    if len(found) < len(source.parts):
        raise _missing(source, found, places)
    contents = {}
    for path in dict.fromkeys(found.values()):
        for content in _contents(source, path, [part for part in source.parts if found[part.name] == path]):
            problem = content.problem
            if problem:
                raise content.refusal(problem)
            contents[content.part.name] = content
    return contents


def inspect(source: Source, places: Sequence[Path]) -> list[FileState]:
    """Look for each part, read it and compare its checksum."""
    found = find(source, places)
    states = {part.name: FileState(part.name, "missing") for part in source.parts}
    for path in dict.fromkeys(found.values()):
        parts = [part for part in source.parts if found.get(part.name) == path]
        try:
            for content in _contents(source, path, parts):
                problem = content.problem
                name, state = content.part.name, "wrong" if problem else "ok"
                states[name] = FileState(name, state, path, str(content.refusal(problem)) if problem else None)
        except GossamerError as error:
            states |= {part.name: FileState(part.name, "wrong", path, str(error)) for part in parts}
    return list(states.values())


def _candidates(source: Source, part: Part, places: Sequence[Path]) -> Iterator[Path]:
    for place in places:
        for folder in source.folders:
            yield from (place / folder / f"{part.name}{compression}" for compression in _COMPRESSIONS)
            yield from (place / folder / archive for archive in source.archives)


def _contents(source: Source, path: Path, parts: list[Part]) -> list[Content]:
    """Uncompress these parts from the one file that holds them."""
    try:
        if path.name.endswith(".tar.gz"):
            data = _from_tar(path, parts)
        elif path.suffix == ".zip":
            data = _from_zip(path, parts)
        else:
            data = {part.name: _from_file(path, part) for part in parts}
    except PermissionError:
        raise
    except _UNREADABLE as error:
        raise _refusal(source, path, f"cannot be read ({error})") from error
    for part in parts:
        if part.name not in data:
            raise _refusal(source, path, f"does not hold {part.name}")
    return [Content(source, part, path, data[part.name]) for part in parts]


def _from_file(path: Path, part: Part) -> bytes:
    if path.suffix == ".gz":
        with gzip.open(path) as stream:
            return _limited(stream, part)
    if path.suffix == ".xz":
        with lzma.open(path) as unpacked:
            return _limited(unpacked, part)
    with path.open("rb") as plain:
        return _limited(plain, part)


def _from_zip(path: Path, parts: list[Part]) -> dict[str, bytes]:
    data = {}
    with zipfile.ZipFile(path) as archive:
        for part in parts:
            for member in archive.namelist():
                if member.rpartition("/")[2] == part.name:
                    with archive.open(member) as stream:
                        data[part.name] = _limited(stream, part)
    return data


def _from_tar(path: Path, parts: list[Part]) -> dict[str, bytes]:
    """In one pass from front to back, for going back would mean to uncompress everything again."""
    wanted = {part.name: part for part in parts}
    data = {}
    with tarfile.open(path, "r|gz") as archive:
        for member in archive:
            part = wanted.get(member.name.rpartition("/")[2])
            stream = archive.extractfile(member) if part and member.isfile() else None
            if part and stream:
                data[part.name] = _limited(stream, part)
    return data


def _limited(stream: _Stream, part: Part) -> bytes:
    """One byte more than expected shows that there is too much; a file that unpacks to far more does no harm."""
    return stream.read(part.size + 1)


def _refusal(source: Source, path: Path, problem: str) -> GossamerError:
    return GossamerError(f"{path} {problem}. Delete it and run `gossamer data fetch {source.name}`.")


def _missing(source: Source, found: dict[str, Path], places: Sequence[Path]) -> GossamerError:
    for place in places:
        for folder in source.folders:
            for pickle in source.pickles:
                if (place / folder / pickle).exists():
                    return GossamerError(
                        f"{place / folder / pickle} is the version of {source.name} that is stored as pickles, which "
                        "can run any code when they are opened, so they are not. Take the binary version: "
                        f"run `gossamer data fetch {source.name}`, or put {source.archives[0]} beside it."
                    )
    absent = ", ".join(part.name for part in source.parts if part.name not in found)
    looked = ", ".join(str(place / source.folders[0]) for place in places)
    return GossamerError(
        f"Data set {source.name!r} is not here: no {absent} (plain, .gz or .xz) in {looked}. "
        f"Run `gossamer data fetch {source.name}`, or name the folder that holds `{source.folders[0]}/` "
        "by `--data-dir` or by the environment variable GOSSAMER_DATA."
    )
