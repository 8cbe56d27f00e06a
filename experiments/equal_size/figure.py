"""Accuracy at equal size, relative to l1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev

from matplotlib.axes import Axes

from gossamer_lab.reporting.style import METHODS, Style, add_caption, new_figure, save, tidy

__all__ = ["Rows", "draw"]

Rows = Mapping[str, Mapping[str, Sequence[float]]]
"""Accuracies in percent: by data set and size, then by method."""

_LOOKS = {**METHODS, "unit-tl1": Style("#cc79a7", ":", "P")}
_LIMIT = 4.0  # points of the axis: methods further away are drawn at its end


def draw(panels: Mapping[str, Rows], labels: Mapping[str, str], path: Path) -> Path:
    """Draw one panel for each kind of target, with one row for each size."""
    with new_figure(10.5, 0.9 + 0.38 * max(map(len, panels.values()))) as figure:
        for axes, (title, rows) in zip(figure.subplots(1, len(panels), sharex=True), panels.items(), strict=True):
            _panel(axes, rows, labels)
            axes.set_title(title)
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=5, frameon=False)
        add_caption(
            figure,
            "Difference of the test accuracy to that of l1 at the same size, mean and standard deviation over the "
            f"seeds. Differences beyond {_LIMIT:g} points are drawn at the edge.",
        )
        return save(figure, path)


def _panel(axes: Axes, rows: Rows, labels: Mapping[str, str]) -> None:
    heights = list(range(len(rows), 0, -1))
    axes.axvline(0, color=_LOOKS["l1"].colour, linestyle="--", label="l1")
    for place, (key, label) in enumerate(labels.items()):
        look = _LOOKS[key]
        reference = [fmean(row["l1"]) for row in rows.values()]
        means = [fmean(row[key]) - zero for row, zero in zip(rows.values(), reference, strict=True)]
        spreads = [stdev(row[key]) if len(row[key]) > 1 else 0.0 for row in rows.values()]
        axes.errorbar(
            [min(_LIMIT, max(-_LIMIT, value)) for value in means],
            [height + 0.12 * (1.5 - place) for height in heights],
            xerr=spreads,
            color=look.colour,
            marker=look.marker,
            markersize=5,
            linestyle="",
            elinewidth=0.8,
            label=label,
        )
    axes.set_yticks(heights, list(rows))
    axes.set_xlim(-_LIMIT - 0.2, _LIMIT + 0.2)
    axes.set_xlabel("accuracy relative to l1 (points)")
    tidy(axes)
