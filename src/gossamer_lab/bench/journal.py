"""Measurements of an unfinished benchmark, written as they come: started again, it goes on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gossamer.files import append_line, write_atomically
from gossamer_lab.bench.result import Machine, Value

__all__ = ["Journal", "Row"]

Row = dict[str, Value]


class Journal:
    """A file of JSON lines: the machine, then a line for each measurement.

    What was measured on another machine, with other versions or on another day counts for nothing.

    Args:
        path: The file; None keeps the measurements in memory.
        report: Called with a line of text for each new measurement.
    """

    def __init__(self, path: Path | None = None, report: Callable[[str], None] = lambda _: None) -> None:
        self._path, self._report = path, report
        self._rows: dict[str, Row] = {}
        head = json.dumps(asdict(Machine.here()))
        if path is None:
            return
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        if lines[:1] == [head]:
            self._rows = {line["key"]: line["row"] for line in _complete(lines[1:])}
        write_atomically(path, "".join(f"{line}\n" for line in (head, *self._lines())).encode())

    def measured(self, key: str, measure: Callable[[], Row]) -> Row:
        """The row of this key: that of the file, or measured now and written."""
        if key not in self._rows:
            self._rows[key] = measure()
            self._report(key)
            if self._path is not None:
                append_line(self._path, _line(key, self._rows[key]))
        return self._rows[key]

    def close(self) -> None:
        """Remove the file: the result is written."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _lines(self) -> list[str]:
        return [_line(key, row) for key, row in self._rows.items()]


def _line(key: str, row: Row) -> str:
    return json.dumps({"key": key, "row": row})


def _complete(lines: list[str]) -> list[dict[str, Any]]:
    """Without a last line that was cut off."""
    found = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except ValueError:
            break
    return found
