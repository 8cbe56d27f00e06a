"""Accuracy at equal size, relative to l1; and over the size after `shrink`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev

from matplotlib.axes import Axes

from gossamer_lab.reporting.style import METHODS, Style, add_caption, new_figure, save, tidy

__all__ = ["Curve", "Rows", "draw", "draw_curves"]

Rows = Mapping[str, Mapping[str, Sequence[float]]]
"""Accuracies in percent: by data set and size, then by method."""

Curve = dict[float, list[float]]
"""Accuracies of all seeds in percent, by the part of the MACs in percent."""

_LOOKS = {**METHODS, "itl-units": METHODS["itl"], "unit-tl1": Style("#cc79a7", ":", "P")}
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


def draw_curves(panels: Mapping[str, Mapping[str, Curve]], labels: Mapping[str, str], path: Path) -> Path:
    """Draw one panel for each data set, with one curve for each method."""
    with new_figure(10.5, 2.9) as figure:
        for axes, (title, curves) in zip(figure.subplots(1, len(panels)), panels.items(), strict=True):
            for key, label in labels.items():
                curve = {size: values for size, values in sorted(curves[key].items()) if values}
                look = _LOOKS[key]
                axes.errorbar(
                    list(curve),
                    [fmean(values) for values in curve.values()],
                    yerr=[stdev(values) if len(values) > 1 else 0.0 for values in curve.values()],
                    color=look.colour,
                    linestyle=look.line,
                    marker=look.marker,
                    markersize=5,
                    elinewidth=0.8,
                    label=label,
                )
            axes.set_title(title)
            axes.set_xlabel("MACs after shrink (%)")
            tidy(axes)
        figure.axes[0].set_ylabel("test accuracy (%)")
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False)
        add_caption(
            figure,
            "At half and at the whole of the MACs that l1 leaves in the table of the paper. Mean and standard "
            "deviation over the seeds.",
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
