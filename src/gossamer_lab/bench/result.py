"""The answer to one question: a table of plain values, the machine it was measured on, and both as JSON."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from gossamer.errors import GossamerError

__all__ = ["Machine", "Result", "Value", "markdown", "read_result", "text"]

Value = str | int | float | None


@dataclass(frozen=True)
class Machine:
    """What a time depends on, apart from the code."""

    processor: str
    cores: int
    threads: int
    system: str
    python: str
    torch: str
    date: str

    @classmethod
    def here(cls) -> Machine:
        """This machine, now."""
        return cls(
            processor=_processor(),
            cores=os.cpu_count() or 1,
            threads=torch.get_num_threads(),
            system=f"{platform.system()} {platform.machine()}",
            python=platform.python_version(),
            torch=torch.__version__,
            date=datetime.now(UTC).strftime("%Y-%m-%d"),
        )

    def __str__(self) -> str:
        return (
            f"{self.processor}, {self.cores} cores, {self.threads} threads used, {self.system}, "
            f"Python {self.python}, torch {self.torch}, {self.date}"
        )


@dataclass(frozen=True)
class Result:
    """One question, a row for each thing that was measured; all rows have the same columns."""

    question: str
    title: str
    note: str
    machine: Machine
    rows: tuple[dict[str, Value], ...]

    def write(self, folder: Path) -> Path:
        """Write `<question>.json` into the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.question}.json"
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")
        return path


def read_result(path: Path) -> Result:
    """The result in a file that `Result.write` wrote."""
    try:
        content: dict[str, Any] = json.loads(path.read_text())
        machine = Machine(**content.pop("machine"))
        return Result(machine=machine, rows=tuple(content.pop("rows")), **content)
    except (ValueError, TypeError, KeyError) as error:
        raise GossamerError(f"`{path}` is no result of `gossamer bench`: {error}.") from error


def text(result: Result) -> str:
    """The table for a terminal."""
    header, *rows = _cells(result)
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    lines = ["  ".join(_aligned(row, widths)).rstrip() for row in (header, *rows)]
    rule = "-" * max(map(len, lines))
    return "\n".join([f"{result.question}: {result.title}", rule, lines[0], rule, *lines[1:], rule, result.note])


def markdown(result: Result) -> str:
    """The table for a page of documentation."""
    header, *rows = _cells(result)
    aligned = ["---", *("---:" for _ in header[1:])]
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, aligned, *rows))


def _cells(result: Result) -> list[list[str]]:
    columns = list(dict.fromkeys(column for row in result.rows for column in row))
    return [columns, *([_cell(row.get(column)) for column in columns] for row in result.rows)]


def _cell(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else value


def _aligned(row: list[str], widths: list[int]) -> list[str]:
    name, *others = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
    return [name.strip().ljust(widths[0]), *others]


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
