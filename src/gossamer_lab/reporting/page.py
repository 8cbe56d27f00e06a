"""A page of documentation whose tables are those that the experiments have written.

A table stands between the comments `<!-- levers/table.md -->` and `<!-- end of levers/table.md -->`.
"""

from __future__ import annotations

import re
from pathlib import Path

from gossamer.files import write_atomically

__all__ = ["fill_page", "filled"]

_TABLE = re.compile(r"(<!-- (\S+\.md) -->\n).*?(<!-- end of \2 -->)", re.DOTALL)


def filled(page: str, results: Path) -> str:
    """The page with every table that it asks for; one that is not there is said to be missing."""

    def table(match: re.Match[str]) -> str:
        file = results / match[2]
        text = file.read_text(encoding="utf-8").strip() if file.exists() else "(not made yet)"
        return f"{match[1]}\n{text}\n\n{match[3]}"

    return _TABLE.sub(table, page)


def fill_page(path: Path, results: Path) -> None:
    """Write the tables of a page anew."""
    write_atomically(path, filled(path.read_text(encoding="utf-8"), results).encode())
