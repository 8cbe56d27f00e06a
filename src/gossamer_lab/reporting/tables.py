"""Tables for the terminal and for Markdown pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

__all__ = ["Bold", "Table", "mean_std", "percent", "print_tables"]


class Bold(str):
    """A cell set in bold."""

    __slots__ = ()


@dataclass(frozen=True)
class Table:
    """A table of text.

    Attributes:
        columns: Headings.
        rows: Cells, as many per row as there are columns.
        title: Title on a terminal, and of a titled Markdown table.
        note: Text below the table.
        align: Alignment of the leading columns, `l` or `r` each; the others are right-aligned.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    note: str = ""
    align: str = "l"

    def markdown(self, titled: bool = False) -> str:
        """Return the table in Markdown, with its title as a heading if `titled`."""
        rule = ["---" if side == "l" else "---:" for side in self._sides()]
        lines = [f"| {' | '.join(map(_escaped, cells))} |" for cells in (self.columns, rule, *self.rows)]
        heading = f"### {self.title}\n\n" if titled and self.title else ""
        note = f"\n{self.note}\n" if self.note else ""
        return heading + "\n".join(lines) + "\n" + note

    def rich(self) -> RichTable:
        """Return the cells for a terminal, without title and note."""
        table = RichTable(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        for heading, side in zip(self.columns, self._sides(), strict=True):
            table.add_column(Text(heading), justify="left" if side == "l" else "right", no_wrap=True)
        for row in self.rows:
            table.add_row(*(Text(cell, style="bold" if isinstance(cell, Bold) else "") for cell in row))
        return table

    def transposed(self) -> Table:
        """Return the table with rows and columns exchanged."""
        columns, *rows = zip(self.columns, *self.rows, strict=True)
        return Table(columns, rows, self.title, self.note)

    def _sides(self) -> str:
        return self.align.ljust(len(self.columns), "r")


def print_tables(console: Console, tables: Sequence[Table]) -> None:
    """Print tables; in a terminal that is too narrow for one, with rows and columns exchanged or as a list.

    A file gets long lines instead: they are for programs.
    """
    width = console.width
    for table in tables:
        if table.title:
            console.print(Text(table.title, style="bold"), soft_wrap=False)
        shapes = (table, table.transposed())
        fitting = next((shape for shape in shapes if _width(console, shape) <= width), None)
        shown = fitting if console.is_terminal else table
        if shown is None:
            _print_list(console, table)
        else:
            console.width = max(width, _width(console, shown))
            console.print(shown.rich())
            console.width = width
        if table.note:
            console.print(Text(table.note))
            console.print()


def _width(console: Console, table: Table) -> int:
    return console.measure(table.rich(), options=console.options.update(width=10_000)).maximum


def _print_list(console: Console, table: Table) -> None:
    """One line for each cell, under the first cell of its row."""
    for first, *others in table.rows:
        console.print(Text(first or "-", style="bold"), soft_wrap=False)
        for heading, cell in zip(table.columns[1:], others, strict=True):
            if cell:
                console.print(Text(f"  {heading}: {cell}"), soft_wrap=False)


def mean_std(values: Sequence[float], digits: int = 2) -> str:
    """Format the mean ± the sample standard deviation (divided by n - 1); a single value has none."""
    mean = f"{fmean(values):.{digits}f}"
    return f"{mean} ± {stdev(values):.{digits}f}" if len(values) > 1 else mean


def percent(fraction: float, digits: int = 2) -> str:
    """Format a fraction in percent, without the sign."""
    return f"{100 * fraction:.{digits}f}"


def _escaped(cell: str) -> str:
    text = cell.replace("|", "\\|")
    return f"**{text}**" if isinstance(cell, Bold) else text
