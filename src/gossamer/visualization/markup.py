"""HTML elements. Every string is escaped unless it is `Html` already."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Column", "Html", "Table", "render", "tag"]

_VOID = {"img"}


class Html(str):
    """Text that is HTML already and is not escaped again."""

    __slots__ = ()


def tag(name: str, *children: str, **attributes: str | int) -> Html:
    """An element. `class_` stands for the attribute `class`, `aria_label` for `aria-label`."""
    written = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(str(v))}"' for key, v in attributes.items())
    if name in _VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{render(children)}</{name}>")


def render(children: Iterable[str]) -> Html:
    """Elements and strings one after another."""
    return Html("".join(child if isinstance(child, Html) else escape(child) for child in children))


@dataclass(frozen=True)
class Column:
    """A column of a table: its heading, the heading of the columns that it belongs to, and whether it holds numbers."""

    heading: str
    group: str = ""
    number: bool = True


@dataclass(frozen=True)
class Table:
    """A table whose first column names the rows; `note` stands above it, and `total` sets off the last row."""

    name: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    note: str = ""
    total: bool = False

    def html(self) -> Html:
        """The table in a frame that scrolls sideways on its own, by finger or keyboard."""
        caption = tag("caption", self.caption, id=f"{self.name}-caption")
        bodies = [tag("tbody", *(self._row(row) for row in (self.rows[:-1] if self.total else self.rows)))]
        if self.total:
            bodies.append(tag("tfoot", self._row(self.rows[-1])))
        table = tag("table", caption, tag("thead", *self._headings()), *bodies)
        frame = tag("div", table, class_="scroll", role="region", tabindex=0, aria_labelledby=f"{self.name}-caption")
        return render([tag("p", self.note, class_="about"), frame]) if self.note else frame

    def _headings(self) -> list[Html]:
        rows = []
        if any(column.group for column in self.columns):
            rows.append(tag("tr", *self._groups()))
        rows.append(
            tag("tr", *(tag("th", column.heading, scope="col", class_=_kind(column)) for column in self.columns))
        )
        return rows

    def _groups(self) -> list[Html]:
        """One cell over each run of columns with the same group."""
        runs: list[tuple[str, int]] = []
        for column in self.columns:
            if runs and runs[-1][0] == column.group:
                runs[-1] = (column.group, runs[-1][1] + 1)
            else:
                runs.append((column.group, 1))
        return [
            tag("th", group, scope="colgroup", colspan=width) if group else tag("td", colspan=width)
            for group, width in runs
        ]

    def _row(self, cells: Sequence[str]) -> Html:
        first, *others = cells
        return tag(
            "tr",
            tag("th", first, scope="row"),
            *(tag("td", cell, class_=_kind(column)) for cell, column in zip(others, self.columns[1:], strict=True)),
        )


def _kind(column: Column) -> str:
    return "number" if column.number else "words"
