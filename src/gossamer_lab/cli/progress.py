"""Progress of long work on stderr: bars on a terminal, lines in a log."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

__all__ = ["ProgressBars", "ProgressLog", "progress_reporter"]

# A log has a line for the first and the last part of a task, and at most one per this time in between.
_SECONDS_BETWEEN_LINES = 30.0


class ProgressBars:
    """One bar per task."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._current: TaskID | None = None

    def start(self, title: str, total: int) -> None:
        """Add a bar for a task of `total` parts."""
        self._current = self._progress.add_task(title, total=total, text="")

    def advance(self, message: str, parts: int = 1) -> None:
        """Advance the bar by some parts."""
        if self._current is not None:
            self._progress.update(self._current, advance=parts, text=message)


class ProgressLog:
    """A line from time to time."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._title, self._done, self._total, self._logged_at = "", 0, 0, -math.inf

    def start(self, title: str, total: int) -> None:
        """Start a task of `total` parts."""
        self._title, self._done, self._total, self._logged_at = title, 0, total, -math.inf

    def advance(self, message: str, parts: int = 1) -> None:
        """Count some parts, and print a line if the last one is old enough."""
        self._done += parts
        if self._done == self._total or self._clock() - self._logged_at >= _SECONDS_BETWEEN_LINES:
            self._logged_at = self._clock()
            self._console.print(f"{self._title}: {self._done} of {self._total}, {message}", markup=False)


@contextmanager
def progress_reporter(silent: bool = False) -> Iterator[ProgressBars | ProgressLog]:
    """Yield the reporter for stderr, which prints nothing if `silent`."""
    console = Console(stderr=True, highlight=False, soft_wrap=True, quiet=silent)
    if not console.is_terminal:
        yield ProgressLog(console)
        return
    columns = (
        TextColumn("{task.description:10}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        TextColumn("{task.fields[text]}"),
    )
    with Progress(*columns, console=console) as progress:
        yield ProgressBars(progress)
