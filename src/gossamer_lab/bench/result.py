"""The result of a benchmark: rows of plain values, the machine, and their JSON file."""

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
from gossamer.files import write_atomically
from gossamer_lab.reporting.tables import Table

__all__ = ["Machine", "Result", "Value", "read_result", "result_file"]

Value = str | int | float | None


@dataclass(frozen=True)
class Machine:
    """The environment that the times depend on."""

    processor: str
    cores: int
    threads: int
    system: str
    python: str
    torch: str
    date: str

    @classmethod
    def here(cls) -> Machine:
        """Return the current environment."""
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
        threads = f"{self.threads} thread{'' if self.threads == 1 else 's'} used"
        return (
            f"{self.processor}, {self.cores} cores, {threads}, {self.system}, "
            f"Python {self.python}, torch {self.torch}, {self.date}"
        )


@dataclass(frozen=True)
class Result:
    """A measured table.

    Attributes:
        name: Name of the benchmark.
        title: What was measured.
        note: Explanation of the columns.
        machine: The environment.
        rows: Values by column; all rows have the same columns.
    """

    name: str
    title: str
    note: str
    machine: Machine
    rows: tuple[dict[str, Value], ...]

    def write(self, folder: Path) -> Path:
        """Write the result to its JSON file in a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        path = result_file(self.name, folder)
        write_atomically(path, (json.dumps(asdict(self), indent=1) + "\n").encode())
        return path

    def table(self) -> Table:
        """Return the result as a table."""
        columns = list(dict.fromkeys(column for row in self.rows for column in row))
        rows = [[_cell(row.get(column)) for column in columns] for row in self.rows]
        return Table(columns, rows, f"{self.name}: {self.title}", f"{self.note} Measured on: {self.machine}.")


def result_file(name: str, folder: Path) -> Path:
    """Return the path of a benchmark's result file."""
    return folder / f"{name.replace('-', '_')}.json"


def read_result(path: Path) -> Result:
    """Read a file of `Result.write`."""
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        machine = Machine(**content.pop("machine"))
        return Result(machine=machine, rows=tuple(content.pop("rows")), **content)
    except (ValueError, TypeError, KeyError) as error:
        raise GossamerError(f"`{path}` is not a result of `gossamer bench`: {error}.") from error


def _cell(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else value


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
