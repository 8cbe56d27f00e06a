"""One self-contained HTML file from the data of a page: style, scripts, figures and images are inside.

The page loads nothing: its content security policy allows no connection, and Plotly is part of the file. The same
data gives the same bytes.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
from collections.abc import Sequence
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from string import Template

from gossamer.errors import GossamerError
from gossamer.files import write_atomically
from gossamer.visualization.data import Page
from gossamer.visualization.markup import Html, render, tag
from gossamer.visualization.sections import Section, sections
from gossamer.visualization.themes import DARK, LIGHT

__all__ = ["check_can_write", "check_plotly", "page_html", "write_page"]


def write_page(page: Page, path: str | os.PathLike[str]) -> Path:
    """Write the page to the file `path`, whole or not at all; what is there is replaced."""
    content = page_html(page).encode("utf-8")
    target = Path(path)
    write_atomically(target, content)
    return target


def page_html(page: Page) -> str:
    """The page as text."""
    script = plotly_script()
    found = sections(page)
    return Template(_asset("page.html")).substitute(
        title=render([page.title]),
        version=render([version("gossamer")]),
        style=_style(),
        links=render(tag("li", tag("a", section.title, href=f"#{section.name}")) for section in found),
        sections=render(section.html() for section in found),
        data=_inline_json({"themes": _themes(), "charts": _charts(found)}),
        plotly=script,
        script=Html(_asset("page.js")),
    )


def check_can_write(path: str | os.PathLike[str]) -> None:
    """Raise `GossamerError` unless there is Plotly and the folder of `path`: before any work is done."""
    check_plotly()
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise GossamerError(f"cannot write {str(path)!r}: there is no folder {str(folder)!r}. Make it first.")


def check_plotly() -> None:
    """Raise `GossamerError` unless Plotly is installed."""
    if importlib.util.find_spec("plotly") is None:
        raise GossamerError("a report needs plotly, which is not installed. Run: pip install 'gossamer[report]'")


def plotly_script() -> str:
    """Plotly's JavaScript, from the installed Python package."""
    check_plotly()
    # Imported here, by name: the library works without it, and it has no types to check.
    script: str = importlib.import_module("plotly.offline").get_plotlyjs()
    return script


def _style() -> str:
    light, dark = LIGHT.variables, DARK.variables
    colours = f":root {{ {light} }}\n@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
    return colours + _asset("page.css")


def _themes() -> dict[str, object]:
    return {"light": LIGHT.template, "dark": DARK.template}


def _charts(found: Sequence[Section]) -> dict[str, list[object]]:
    return {chart.name: list(chart.figures.values()) for section in found for chart in section.charts}


def _inline_json(value: object) -> str:
    """JSON that can stand inside a `script` element: no `<` can end it."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _asset(name: str) -> str:
    return files("gossamer.visualization").joinpath("assets", name).read_text(encoding="utf-8")
