"""Sections of documentation pages, from result files: the table of each benchmark, and a short one for the README."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gossamer_lab.bench.result import Result, Value, read_result, result_file
from gossamer_lab.reporting.page import fill_page
from gossamer_lab.reporting.tables import Table

__all__ = ["page_section", "publish"]


def page_section(folder: Path) -> Callable[[str], str]:
    """Return the function that renders a section of a documentation page from the result files in a folder.

    A section has the name of its benchmark, or is "native-summary".
    """

    def section(name: str) -> str:
        benchmark = "native" if name == "native-summary" else name
        path = result_file(benchmark, folder)
        if not path.exists():
            return f"(not measured yet: `gossamer bench {benchmark}`)"
        result = read_result(path)
        return _native_summary(result) if name == "native-summary" else _whole(result)

    return section


def publish(result: Result, folder: Path, page: Path) -> None:
    """Write a result file, and the sections of a documentation page from all result files of the folder."""
    result.write(folder)
    fill_page(page, page_section(folder))


def _whole(result: Result) -> str:
    return f"{result.title[0].upper()}{result.title[1:]}.\n\n{result.table().markdown()}"


def _native_summary(result: Result) -> str:
    """Trained networks, one thread: how much faster than ONNX Runtime."""
    rows = {(str(row["network"]), row["batch"]): row for row in result.rows if row["threads"] == 1}
    names = [name for name, batch in rows if batch == 1 and rows[name, 1]["ONNX Runtime dense"] is not None]
    columns = [("ONNX Runtime dense", 1), ("ONNX Runtime dense", 64), ("ONNX Runtime", 1), ("ONNX Runtime", 64)]
    cells = [
        [name, f"{_number(rows[name, 1]['weights %']):.2g} %"]
        + [f"{_number(rows[name, batch][engine]):.1f}x" for engine, batch in columns]
        for name in names
    ]
    headings = ("", "weights", "dense, batch 1", "dense, batch 64", "shrunk, batch 1", "shrunk, batch 64")
    return Table(headings, cells).markdown()


def _number(value: Value) -> float:
    assert isinstance(value, float)
    return value
