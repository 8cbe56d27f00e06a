"""A page of documentation whose tables come from result files, never from a keyboard.

A table stands between the comments `<!-- table a -->` and `<!-- end of table a -->`, and is written from `a.json`.
"""

from __future__ import annotations

import re
from pathlib import Path

from gossamer_lab.bench.result import markdown, read_result

__all__ = ["fill_page", "filled"]

_TABLE = re.compile(r"(<!-- table (\w+) -->\n).*?(<!-- end of table \2 -->)", re.DOTALL)


def filled(page: str, folder: Path) -> str:
    """The page with every table that it asks for; one without a result file says so."""

    def table(match: re.Match[str]) -> str:
        path = folder / f"{match[2]}.json"
        if not path.exists():
            return f"{match[1]}\n(not measured yet: `gossamer bench {match[2]}`)\n\n{match[3]}"
        result = read_result(path)
        note = f"{result.title[0].upper()}{result.title[1:]}. {result.note}"
        return f"{match[1]}\n{markdown(result)}\n\n{note} Measured on: {result.machine}.\n\n{match[3]}"

    return _TABLE.sub(table, page)


def fill_page(path: Path, folder: Path) -> None:
    """Write the tables of a page anew."""
    path.write_text(filled(path.read_text(), folder))
