"""Downloading a data set from where it was published."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from gossamer.errors import GossamerError
from gossamer_lab.data.files import cache, find, inspect, roots
from gossamer_lab.data.sources import Mirror, Source, source

__all__ = ["Progress", "fetch", "obtain"]

Progress = Callable[[str, int, int], None]
"""Called with the name of a file, its bytes so far, and all its bytes (0 where the server does not say)."""

_CHUNK = 1 << 16


def fetch(name: str, folder: Path | None = None, progress: Progress | None = None) -> list[Path]:
    """Download the files of a data set into ``folder``, or into the user's cache; return the new files.

    What is already there is not downloaded again. The mirrors are tried in turn, and a file takes its place only when
    the data set is complete and every checksum is right: a download that fails leaves nothing behind.
    """
    wanted = source(name)
    states = inspect(wanted, roots() if folder is None else [folder])
    for state in states:
        if state.problem:
            raise GossamerError(state.problem)
    if all(state.state == "ok" for state in states):
        return []
    with _new_folder((folder or cache()) / wanted.folders[0]) as target:
        failures = []
        for mirror in wanted.mirrors:
            with TemporaryDirectory(dir=target, prefix=".fetch-") as temporary:
                failure = _download(wanted, mirror, Path(temporary), progress)
                if failure is None:
                    return [Path(temporary, file).replace(target / file) for file in mirror.files]
                failures.append(f"{mirror.url} {failure}")
    raise GossamerError(
        f"Data set {name!r} could not be downloaded: {'; '.join(failures)}. Nothing was written. "
        f"Try again later, or get {', '.join(part.name for part in wanted.parts)} (plain, .gz or .xz) "
        f"from elsewhere and copy them to {target}, or name the folder that holds `{wanted.folders[0]}/` "
        "by `--data-dir` or by the environment variable GOSSAMER_DATA."
    )


def obtain(name: str, folder: Path | None = None, progress: Progress | None = None) -> None:
    """Make sure that a data set can be loaded: what is in none of the places it is looked for in is fetched."""
    wanted = source(name)
    if len(find(wanted, roots(folder))) < len(wanted.parts):
        fetch(name, progress=progress)


@contextmanager
def _new_folder(path: Path) -> Iterator[Path]:
    """Make a folder, and take it away again if nothing has come into it."""
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    try:
        yield path
    finally:
        with suppress(OSError):  # the first folder that is not empty
            for folder in made:
                folder.rmdir()


def _download(wanted: Source, mirror: Mirror, folder: Path, progress: Progress | None) -> str | None:
    """Download all files of a mirror and check them; return what went wrong."""
    from requests import exceptions

    try:
        for file, checksum in mirror.files.items():
            _retrieve(f"{mirror.url}{file}", folder / file, checksum, progress)
    except exceptions.ChunkedEncodingError:
        return "broke off in the middle of a file"
    except (exceptions.ConnectionError, exceptions.Timeout):
        return "could not be reached"
    except exceptions.RequestException as error:
        return f"failed ({error})"
    except ValueError:  # pooch's word for a checksum
        return f"sent another {file} than was published (its checksum differs)"
    states = inspect(replace(wanted, folders=(".",)), [folder])
    wrong = [state.name for state in states if state.state != "ok"]
    return f"sent another {', '.join(wrong)} than was published" if wrong else None


def _retrieve(url: str, path: Path, checksum: str | None, progress: Progress | None) -> None:
    import pooch  # type: ignore[import-untyped]

    downloader = pooch.HTTPDownloader(
        progressbar=_Bar(path.name, progress) if progress else False,
        chunk_size=_CHUNK,
        # The file as it is stored: a server that packs it for the way would hide where it really ends.
        headers={"Accept-Encoding": "identity"},
    )
    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel(logging.WARNING)  # else it writes a line for each file
    try:
        pooch.retrieve(url, known_hash=checksum, fname=path.name, path=path.parent, downloader=downloader)
    finally:
        logger.setLevel(level)


@dataclass
class _Bar:
    """What pooch wants of a progress bar, to call ``progress`` with."""

    file: str
    progress: Progress
    total: int = 0
    done: int = 0

    def update(self, step: int) -> None:
        self.done += step
        # pooch counts whole chunks, and the last one is seldom full.
        self.progress(self.file, min(self.done, self.total) if self.total else self.done, self.total)

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None:
        pass
