"""How far long work has come: a bar on a terminal, lines in a log, both on stderr."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

__all__ = ["Bars", "Lines", "watching"]

# A log gets a line for the first and the last part of the work, and between them at most one in so many seconds.
_SECONDS_BETWEEN_LINES = 30.0


class Bars:
    """One bar for each piece of work."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._current: TaskID | None = None

    def begin(self, title: str, total: int) -> None:
        """Draw a new bar."""
        self._current = self._progress.add_task(title, total=total, text="")

    def advance(self, text: str) -> None:
        """Let the bar grow by one part."""
        if self._current is not None:
            self._progress.update(self._current, advance=1, text=text)

    def say(self, text: str) -> None:
        """Write a line above the bars."""
        self._progress.console.print(text, markup=False)


class Lines:
    """A line now and then."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._title, self._done, self._total, self._told_at = "", 0, 0, -math.inf

    def begin(self, title: str, total: int) -> None:
        """Count from nothing."""
        self._title, self._done, self._total, self._told_at = title, 0, total, -math.inf

    def advance(self, text: str) -> None:
        """Count one part, and say so now and then."""
        self._done += 1
        if self._done == self._total or self._clock() - self._told_at >= _SECONDS_BETWEEN_LINES:
            self._told_at = self._clock()
            self._console.print(f"{self._title}: {self._done} of {self._total}, {text}", markup=False)

    def say(self, text: str) -> None:
        """Write a line."""
        self._console.print(text, markup=False)


@contextmanager
def watching() -> Iterator[Bars | Lines]:
    """Give what is to be told about the progress."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if not console.is_terminal:
        yield Lines(console)
        return
    columns = (
        TextColumn("{task.description:10}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[text]}"),
    )
    with Progress(*columns, console=console) as progress:
        yield Bars(progress)
