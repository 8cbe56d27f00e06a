"""A chart: a Plotly figure as plain data, with its title and its content in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, TypeAlias

from gossamer.visualization.markup import Html, Table, render, tag

__all__ = ["DASHES", "SYMBOLS", "Chart", "Figure", "kept_axis", "literal", "percent_axis"]

Figure: TypeAlias = dict[str, Any]
"""`data` and `layout` as Plotly defines them. Colours come from the template, which the page chooses."""

# Series differ by more than their colour.
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SYMBOLS = ("circle", "square", "triangle-up", "diamond", "cross", "x")


@dataclass(frozen=True)
class Chart:
    """A figure that the page draws in the element `name`.

    Attributes:
        name: Of the element.
        title: Heading above the chart.
        words: The content in a sentence or two: text under the heading, and what a screen reader says.
        height: In pixels.
        figures: One figure, or several by label, of which the reader chooses one.
        tables: The numbers behind the chart, for those who do not see it.
        choice: What the reader chooses, where there are several figures.
    """

    name: str
    title: str
    words: str
    height: int
    figures: dict[str, Figure]
    tables: Sequence[Table] = ()
    choice: str = "Layer"

    def html(self) -> Html:
        """The frame of the chart; the figures themselves are elsewhere on the page, by `name`."""
        heading = tag("h3", self.title, id=f"{self.name}-title")
        plot = tag(
            "div", id=self.name, class_="plot", role="img", aria_labelledby=f"{self.name}-title",
            aria_describedby=f"{self.name}-words", style=f"height: {self.height}px",
        )  # fmt: skip
        words = tag("p", self.words, id=f"{self.name}-words")
        parts = [tag("figcaption", heading, words), *self._choice(), plot, *self._numbers()]
        return tag("figure", *parts, class_="card chart", aria_labelledby=f"{self.name}-title")

    def _choice(self) -> list[Html]:
        if len(self.figures) < 2:
            return []
        options = [tag("option", label, value=number) for number, label in enumerate(self.figures)]
        name = f"{self.name}-choice"
        select = tag("select", *options, id=name, data_chart=self.name, autocomplete="off")
        return [tag("p", tag("label", f"{self.choice} ", for_=name), select, class_="choice")]

    def _numbers(self) -> list[Html]:
        if not self.tables:
            return []
        return [tag("details", tag("summary", "Numbers of this chart"), render(table.html() for table in self.tables))]


def literal(text: str) -> str:
    """A string of the user for a figure: Plotly takes some tags for markup, links among them."""
    return escape(text, quote=False)


def percent_axis(title: str) -> dict[str, Any]:
    """An axis in percent."""
    return {"title": {"text": title}, "ticksuffix": "%"}


def kept_axis(fractions: Iterable[float | None], title: str = "weights kept") -> dict[str, Any]:
    """An axis in percent for what is kept: logarithmic, with ticks at 1, 2 and 5, unless there is a zero."""
    found = [100 * value for value in fractions if value is not None]
    if not found or min(found) <= 0:
        return percent_axis(title)
    lowest, highest = math.floor(math.log10(min(found))), math.ceil(math.log10(max(found)))
    steps = (1, 2, 5) if highest - lowest <= 3 else (1,)
    ticks = [step * 10.0**power for power in range(lowest, highest + 1) for step in steps]
    axis = percent_axis(f"{title}, log scale")
    return {**axis, "type": "log", "tickvals": ticks, "ticktext": [f"{tick:g}%" for tick in ticks]}
