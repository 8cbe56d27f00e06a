"""What the benchmarks of docs/scaling.md share: the command line, and how a result is shown and written."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from gossamer_lab.bench.page import publish
from gossamer_lab.bench.result import Machine, Result, Value

_HERE = Path(__file__).parent


def options(description: str, **defaults: int) -> argparse.Namespace:
    """The options of the command line: numbers with these defaults, and `--write`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, number in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--write", action="store_true", help="write the result file and the page")
    return parser.parse_args()


def show(name: str, title: str, note: str, rows: Sequence[dict[str, Value]], *, write: bool) -> None:
    """Print the table of a benchmark; write its result file and the page, if asked to."""
    result = Result(name=name, title=title, note=note, machine=Machine.here(), rows=tuple(rows))
    print(result.table().markdown())
    if write:
        publish(result, _HERE / "results", _HERE.parent / "docs" / "scaling.md")
