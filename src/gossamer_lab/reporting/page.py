"""Documentation pages with generated sections.

A section lies between the comments `<!-- begin NAME -->` and `<!-- end NAME -->`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from gossamer.errors import GossamerError
from gossamer.files import write_atomically

__all__ = ["fill_page", "filled"]

_SECTION = re.compile(r"(<!-- begin (\S+) -->\n).*?(<!-- end \2 -->)", re.DOTALL)


def filled(page: str, section: Callable[[str], str]) -> str:
    """Return the page with each section replaced by `section(name)`."""
    return _SECTION.sub(lambda match: f"{match[1]}\n{section(match[2]).strip()}\n\n{match[3]}", page)


def fill_page(path: Path, section: Callable[[str], str]) -> None:
    """Rewrite the sections of a page.

    Args:
        path: The page.
        section: Function from the name of a section to its text.

    Raises:
        GossamerError: If the page does not exist.
    """
    try:
        page = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise GossamerError(f"`--page` must be an existing page; {path} does not exist.") from None
    write_atomically(path, filled(page, section).encode())
