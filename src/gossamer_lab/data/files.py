"""Locating the files of a data set and reading them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gossamer.errors import GossamerError
from gossamer_lab.data.archives import UNREADABLE, unpacked
from gossamer_lab.data.sources import Part, Source

__all__ = ["Content", "FileState", "cache_dir", "find", "inspect", "largest_file", "read", "search_path"]

# Debian's package dataset-fashion-mnist installs to the folder `fashion-mnist` in here.
_SYSTEM = Path("/usr/share/datasets")

_COMPRESSIONS = ("", ".gz", ".xz")


@dataclass(frozen=True)
class Content:
    """The uncompressed bytes of one part, and the file they were read from."""

    source: Source
    part: Part
    path: Path
    data: bytes

    @property
    def problem(self) -> str | None:
        """Why the bytes are not the published ones; None if they are."""
        size = len(self.data)
        if size > self.part.size:
            return f"holds more than the {self.part.size:,} bytes of {self.part.name}"
        if size < self.part.size:
            return f"holds {size:,} bytes; {self.part.name} has {self.part.size:,}"
        # Hashing takes a tenth of the time of reading, so every load verifies.
        if hashlib.sha256(self.data).hexdigest() != self.part.sha256:
            return f"does not hold {self.part.name} of {self.source.name} as published: its SHA-256 differs"
        return None

    def error(self, problem: str) -> GossamerError:
        """Return an error that names the file, the problem and the remedy."""
        return _error(self.source, self.path, problem)


@dataclass(frozen=True)
class FileState:
    """State of one file of a data set.

    Attributes:
        name: Name of the part.
        state: `ok`, `missing` or `wrong`.
        path: The file; None if it is missing.
        problem: The error message that `read` would give; None if there is none.
    """

    name: str
    state: str
    path: Path | None = None
    problem: str | None = None


def cache_dir() -> Path:
    """Return the user's cache folder for downloaded data."""
    import pooch  # type: ignore[import-untyped]

    return Path(pooch.os_cache("gossamer"))


def largest_file(source: Source, file: str | None = None) -> int:
    """Return a size in bytes that a file of the data set does not exceed, packed or not, with room for headers.

    Without `file`, or for one that is not of a single part, that of an archive of all parts.
    """
    one = [part for part in source.parts if file in {f"{part.name}{ending}" for ending in _COMPRESSIONS}]
    return sum(part.size for part in one or source.parts) * 5 // 4 + (1 << 20)


def search_path(folder: Path | None = None) -> list[Path]:
    """Return the data folders in the order they are searched, `folder` first."""
    named = os.environ.get("GOSSAMER_DATA")
    return [
        *([folder] if folder is not None else []),
        *([Path(named).expanduser()] if named else []),
        cache_dir(),
        _SYSTEM,
    ]


def find(source: Source, folders: Sequence[Path]) -> dict[str, Path]:
    """Return the file of each part by part name; missing parts are left out.

    Parts may lie in different folders: each is identified by its checksum.
    """
    found = {}
    for part in source.parts:
        path = next((path for path in _candidates(source, part, folders) if path.is_file()), None)
        if path is not None:
            found[part.name] = path
    return found


def read(source: Source, folder: Path | None = None) -> dict[str, Content]:
    """Read all parts by name and verify their checksums."""
    folders = search_path(folder)
    found = find(source, folders)
    if len(found) < len(source.parts):
        raise _missing(source, found, folders)
    contents = {}
    for path in dict.fromkeys(found.values()):
        for content in _contents(source, path, [part for part in source.parts if found[part.name] == path]):
            problem = content.problem
            if problem:
                raise content.error(problem)
            contents[content.part.name] = content
    return contents


def inspect(source: Source, folders: Sequence[Path]) -> list[FileState]:
    """Locate each part, read it and compare its checksum."""
    found = find(source, folders)
    states = {part.name: FileState(part.name, "missing") for part in source.parts}
    for path in dict.fromkeys(found.values()):
        parts = [part for part in source.parts if found.get(part.name) == path]
        try:
            for content in _contents(source, path, parts):
                problem = content.problem
                name, state = content.part.name, "wrong" if problem else "ok"
                states[name] = FileState(name, state, path, str(content.error(problem)) if problem else None)
        except GossamerError as error:
            states |= {part.name: FileState(part.name, "wrong", path, str(error)) for part in parts}
    return list(states.values())


def _candidates(source: Source, part: Part, folders: Sequence[Path]) -> Iterator[Path]:
    for folder in (root / name for root in folders for name in source.folders):
        yield from (folder / f"{part.name}{compression}" for compression in _COMPRESSIONS)
        yield from (folder / archive for archive in source.archives)


def _contents(source: Source, path: Path, parts: list[Part]) -> list[Content]:
    """Uncompress the given parts of one file."""
    try:
        data = unpacked(path, parts, largest_file(source, path.name))
    except PermissionError:
        raise
    except UNREADABLE as error:
        raise _error(source, path, f"cannot be read ({error})") from error
    for part in parts:
        if part.name not in data:
            raise _error(source, path, f"does not hold {part.name}")
    return [Content(source, part, path, data[part.name]) for part in parts]


def _error(source: Source, path: Path, problem: str) -> GossamerError:
    return GossamerError(f"{path} {problem}. Delete it and run `gossamer data fetch {source.name}`.")


def _missing(source: Source, found: dict[str, Path], folders: Sequence[Path]) -> GossamerError:
    for folder in (root / name for root in folders for name in source.folders):
        for pickle in source.pickles:
            if (folder / pickle).exists():
                return GossamerError(
                    f"{folder / pickle} is the pickled version of {source.name}. Pickles can execute code, so they are "
                    f"not read. Use the binary version: run `gossamer data fetch {source.name}`, or put "
                    f"{source.archives[0]} beside it."
                )
    absent = ", ".join(part.name for part in source.parts if part.name not in found)
    searched = ", ".join(str(root / source.folders[0]) for root in folders)
    return GossamerError(
        f"Data set {source.name!r} was not found: no {absent} (plain, .gz or .xz) in {searched}. "
        f"Run `gossamer data fetch {source.name}`, or give the folder that contains `{source.folders[0]}/` "
        "with `--data-dir` or the environment variable GOSSAMER_DATA."
    )
