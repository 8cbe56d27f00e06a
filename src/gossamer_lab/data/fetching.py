"""Downloading data sets from their public mirrors."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Thread

from gossamer.errors import GossamerError
from gossamer.files import scratch_folder
from gossamer_lab.data.files import cache_dir, find, inspect, largest_file, search_path
from gossamer_lab.data.sources import Mirror, Source, source

__all__ = ["OnDownload", "fetch", "obtain"]

OnDownload = Callable[[str, int, int], None]
"""Called with a file name, the bytes downloaded and the total bytes (0 if the server does not state them)."""

_CHUNK = 1 << 16

# Seconds for a data set, all mirrors included. The largest file has 170 MB: less than 50 kB/s is not worth waiting for.
_TIME_LIMIT = 3600.0


class _StoppedError(Exception):
    """A download that was not worth going on with."""


def fetch(name: str, folder: Path | None = None, on_download: OnDownload | None = None) -> list[Path]:
    """Download the files of a data set and return the new files.

    Existing files are kept. The mirrors are tried in turn. Files are moved into place only when the data set is
    complete and all checksums match, so a failed download leaves nothing behind.

    Args:
        name: Name of the data set.
        folder: Data folder to download to; the user's cache if None.
        on_download: Called as bytes arrive.
    """
    wanted = source(name)
    states = inspect(wanted, search_path() if folder is None else [folder])
    for state in states:
        if state.problem:
            raise GossamerError(state.problem)
    if all(state.state == "ok" for state in states):
        return []
    with _new_folder((folder or cache_dir()) / wanted.folders[0]) as target:
        failures, deadline = [], time.monotonic() + _TIME_LIMIT
        for mirror in wanted.mirrors:
            with scratch_folder(target, "fetch") as scratch:
                failure = _download(wanted, mirror, scratch, on_download, deadline)
                if failure is None:
                    return [(scratch / file).replace(target / file) for file in mirror.files]
                failures.append(f"{mirror.url} {failure}")
    raise GossamerError(
        f"Data set {name!r} could not be downloaded: {'; '.join(failures)}. Nothing was written. "
        f"Try again later, or copy {', '.join(part.name for part in wanted.parts)} (plain, .gz or .xz) "
        f"to {target}, or give the folder that contains `{wanted.folders[0]}/` with `--data-dir` or the environment "
        "variable GOSSAMER_DATA."
    )


def obtain(name: str, folder: Path | None = None, on_download: OnDownload | None = None) -> None:
    """Make sure that a data set can be loaded: download it to the cache if it is not found."""
    wanted = source(name)
    if len(find(wanted, search_path(folder))) < len(wanted.parts):
        fetch(name, on_download=on_download)


@contextmanager
def _new_folder(path: Path) -> Iterator[Path]:
    """Create a folder, and remove it again if it is still empty at the end."""
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    try:
        yield path
    finally:
        with suppress(OSError):  # stop at the first folder that is not empty
            for folder in made:
                folder.rmdir()


def _download(
    wanted: Source, mirror: Mirror, folder: Path, on_download: OnDownload | None, deadline: float
) -> str | None:
    """Download and verify all files of a mirror; return what went wrong, or None."""
    from requests import exceptions

    try:
        for file, checksum in mirror.files.items():
            guard = _Guard(file, on_download, largest_file(wanted, file), deadline)
            _retrieve(f"{mirror.url}{file}", folder / file, checksum, guard)
    except _StoppedError as error:
        return str(error)
    except exceptions.ChunkedEncodingError:
        return "closed the connection in the middle of a file"
    except (exceptions.ConnectionError, exceptions.Timeout):
        return "could not be reached"
    except exceptions.RequestException as error:
        return f"failed ({error})"
    except ValueError:  # raised by pooch for a checksum that differs
        return f"sent a {file} that is not the published one (its checksum differs)"
    states = inspect(replace(wanted, folders=(".",)), [folder])
    wrong = [state.name for state in states if state.state != "ok"]
    return f"sent a {', '.join(wrong)} that is not the published one" if wrong else None


def _retrieve(url: str, path: Path, checksum: str | None, guard: _Guard) -> None:
    import pooch  # type: ignore[import-untyped]

    downloader = pooch.HTTPDownloader(
        progressbar=guard,
        chunk_size=_CHUNK,
        # Without transport compression, so that a truncated transfer is noticed.
        headers={"Accept-Encoding": "identity"},
    )
    # The download writes to a file that is open already: one that is left behind creates nothing in the folder.
    with path.open("wb") as file:
        _until(guard, lambda: downloader(url, file, None))
    pooch.hashes.hash_matches(path, checksum, strict=True)


def _until(guard: _Guard, download: Callable[[], object]) -> None:
    """Run a download in a thread, which is left behind at the deadline.

    A server that sends a byte now and then is never silent for long enough to time out, and fills no chunk.
    """
    failures: list[Exception] = []

    def run() -> None:
        try:
            download()
        except Exception as error:
            if guard.deadline > -math.inf:  # otherwise nobody waits for it any more
                failures.append(error)

    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(max(0.0, guard.deadline - time.monotonic()))
    if thread.is_alive():
        guard.deadline = -math.inf  # it ends with its next chunk
        raise guard.too_slow()
    if failures:
        raise failures.pop()  # nothing else may refer to the error: the connection is closed with it


@dataclass
class _Guard:
    """Follows a download through pooch's progress bar interface, and stops it if it is too large or too slow."""

    file: str
    on_download: OnDownload | None
    limit: int
    deadline: float
    total: int = 0
    done: int = 0

    def update(self, step: int) -> None:
        self.done += step
        # pooch counts whole chunks, and the last one is rarely full.
        if self.done > self.limit + _CHUNK:
            raise _StoppedError(f"sent more than the {self.limit:,} bytes that {self.file} can have")
        if time.monotonic() > self.deadline:
            raise self.too_slow()
        if self.on_download:
            self.on_download(self.file, min(self.done, self.total) if self.total else self.done, self.total)

    def too_slow(self) -> _StoppedError:
        return _StoppedError(
            f"took too long to send {self.file}: {_TIME_LIMIT:.0f} seconds for the whole data set are over"
        )

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None:
        pass
