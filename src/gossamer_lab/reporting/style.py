"""The common look of the figures that are compared with the paper's, and how they are written."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from gossamer.files import write_atomically
from gossamer_lab.paper.published import DATASET_LABELS

__all__ = ["DATASET_LABELS", "STYLES", "Style", "add_caption", "new_figure", "save", "tidy"]


@dataclass(frozen=True)
class Style:
    """How a method is drawn. Colours are told apart by the colour-blind; dashes, markers and hatches without any.

    Attributes:
        label: Short, for axes and legends.
    """

    label: str
    colour: str
    line: str | tuple[float, tuple[float, ...]]
    marker: str
    hatch: str


# By the key of the method. From l2 to ITL the colours grow darker, so that they differ in grey, too.
STYLES = {
    "l2": Style("l2", "#bdbdbd", ":", "D", "\\\\\\"),
    "l1": Style("l1", "#e69f00", "--", "s", "///"),
    "sgl": Style("SGL", "#3a87c8", "-.", "^", "..."),
    "cges": Style("CGES", "#006b4e", (0, (5, 1.5, 1, 1.5, 1, 1.5)), "v", "xxx"),
    "itl": Style("ITL", "#0b2545", "-", "o", ""),
}


@contextmanager
def new_figure(width: float, height: float) -> Iterator[Figure]:
    """Give an empty figure, its size in inches; draw and :func:`save` it inside the ``with``."""
    with rc_context({"font.size": 9.5, "axes.titlesize": 10.5, "axes.titleweight": "bold", "hatch.linewidth": 0.6}):
        figure = Figure(figsize=(width, height), dpi=150, layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1))
        FigureCanvasAgg(figure)
        yield figure


def tidy(axes: Axes) -> None:
    """Leave two of the four edges and a light grid along the y-axis."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#d9d9d9", linewidth=0.6)
    axes.set_axisbelow(True)


def add_caption(figure: Figure, text: str) -> None:
    """Write a caption below all axes, wrapped to the width of the figure."""
    # About 15 letters of its size fit in an inch. A label of all axes is the one text that gets room of its own.
    lines = textwrap.fill(text, int(15 * figure.get_size_inches()[0]))
    figure.supxlabel(lines, fontsize=8.5, x=0.012, ha="left")


def save(figure: Figure, path: Path) -> Path:
    """Write the figure as a PNG, whole or not at all."""
    content = BytesIO()
    figure.savefig(content, format="png")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content.getvalue())
    return path
