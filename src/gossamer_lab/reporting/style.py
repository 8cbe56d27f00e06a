"""The common style of all figures."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from gossamer.files import write_atomically

__all__ = ["METHODS", "RUNS", "SHAPES", "Style", "add_caption", "log_percent", "new_figure", "save", "tidy"]


@dataclass(frozen=True)
class Style:
    """How a series is drawn. The colours are safe for colour-blind readers, and the other attributes differ too."""

    colour: str
    line: str | tuple[float, tuple[float, ...]]
    marker: str
    hatch: str = ""


# By key of the method. The colours darken from l2 to ITL, so that they also differ in greyscale.
METHODS = {
    "l2": Style("#bdbdbd", ":", "D", "\\\\\\"),
    "l1": Style("#e69f00", "--", "s", "///"),
    "sgl": Style("#3a87c8", "-.", "^", "..."),
    "cges": Style("#006b4e", (0, (5, 1.5, 1, 1.5, 1, 1.5)), "v", "xxx"),
    "itl": Style("#0b2545", "-", "o"),
}

# A run and the baselines beside it.
RUNS = (Style("#0b4f8a", "-", "o"), Style("#777777", "--", "s", "///"), Style("#f2a541", "-.", "^", "..."))

# Values of the shape a, ascending. Neighbours differ in lightness.
SHAPES = (
    Style("#000000", "-", "o"),
    Style("#e69f00", "--", "s"),
    Style("#0b3d6e", "-.", "^"),
    Style("#56b4e9", (0, (5, 1.5, 1, 1.5, 1, 1.5)), "D"),
    Style("#00664b", ":", "v"),
    Style("#cc79a7", (0, (8, 2)), "P"),
)


@contextmanager
def new_figure(width: float, height: float) -> Iterator[Figure]:
    """Yield an empty figure of this size in inches; draw and `save` it inside the block."""
    with rc_context({"font.size": 9.5, "axes.titlesize": 10.5, "axes.titleweight": "bold", "hatch.linewidth": 0.6}):
        figure = Figure(figsize=(width, height), dpi=150, layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1))
        FigureCanvasAgg(figure)
        yield figure


def tidy(axes: Axes) -> None:
    """Remove the top and right spines and add a light horizontal grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#d9d9d9", linewidth=0.6)
    axes.set_axisbelow(True)


def log_percent(axis: Axis, subs: tuple[float, ...] = (1, 2, 5)) -> None:
    """Label a logarithmic axis of percentages with plain numbers."""
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def add_caption(figure: Figure, text: str) -> None:
    """Write a caption below all axes, wrapped to the width of the figure."""
    # About 15 characters of this size fit into an inch. Constrained layout reserves space for a supxlabel.
    lines = textwrap.fill(text, int(15 * figure.get_size_inches()[0]))
    figure.supxlabel(lines, fontsize=8.5, x=0.012, ha="left")


def save(figure: Figure, path: Path) -> Path:
    """Write the figure as a PNG file, atomically."""
    content = BytesIO()
    figure.savefig(content, format="png")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content.getvalue())
    return path
