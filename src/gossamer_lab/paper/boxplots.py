"""The paper's box plots: the spread of the runs of each method."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gossamer.errors import GossamerError
from gossamer_lab.paper.compared import TABLE
from gossamer_lab.paper.outcomes import Outcome
from gossamer_lab.paper.published import DATASET_LABELS, MEASURES, Measure
from gossamer_lab.paper.style import STYLES, add_caption, new_figure, save, tidy
from gossamer_lab.paper.table import by_method

__all__ = ["BOXPLOT_DATASETS", "boxplots_figure"]

BOXPLOT_DATASETS = ("pendigits", "cifar-10")
_BOX_WIDTH = 0.5


def boxplots_figure(outcomes: Sequence[Outcome], path: Path) -> Figure:
    """Draw accuracy, kept FLOP and kept parameters on PENDIGITS and CIFAR-10, as far as they are among the outcomes.

    Returns:
        The figure as it was written.
    """
    groups = by_method(outcomes)
    datasets = [name for name in BOXPLOT_DATASETS if any((name, compared.key) in groups for compared in TABLE)]
    if not datasets:
        raise GossamerError(f"The box plots are of {' and '.join(BOXPLOT_DATASETS)}; no outcome is of either.")
    with new_figure(10.5, 0.9 + 3.2 * len(datasets)) as figure:
        panels = figure.subplots(len(datasets), len(MEASURES), squeeze=False)
        for line, dataset in zip(panels, datasets, strict=True):
            runs = {c.key: groups[dataset, c.key] for c in TABLE if (dataset, c.key) in groups}
            for axes, measure in zip(line, MEASURES, strict=True):
                _draw(axes, runs, measure)
                axes.set_title(DATASET_LABELS[dataset])
        add_caption(
            figure,
            "Each point is a run with its own seed, n of them per method, the number the median. Boxes end at the "
            "quartiles (interpolated between the runs), the line is the median, whiskers reach the last run within 1.5 "
            "of the box's length. Accuracy axes do not begin at 0. SGL: sparse group lasso; CGES: combined group and "
            "exclusive sparsity; ITL: integrated transformed l1.",
        )
        save(figure, path)
    return figure


def _draw(axes: Axes, runs: dict[str, list[Outcome]], measure: Measure) -> None:
    values = {
        key: [100 * float(getattr(run.result, measure.key)) for run in outcomes] for key, outcomes in runs.items()
    }
    boxes = axes.boxplot(
        list(values.values()),
        positions=range(len(values)),
        widths=_BOX_WIDTH,
        whis=1.5,
        patch_artist=True,
        showfliers=False,  # every run is drawn below
        medianprops={"color": "black", "linewidth": 1.6},
    )
    for place, (key, box) in enumerate(zip(values, boxes["boxes"], strict=True)):
        style = STYLES[key]
        box.set(facecolor=_lighter(style.colour), edgecolor=style.colour, hatch=style.hatch)
        axes.plot(
            _beside_each_other(place, len(values[key])),
            values[key],
            linestyle="",
            marker=style.marker,
            markersize=5,
            color=style.colour,
            markeredgecolor="black",
            markeredgewidth=0.6,
            zorder=4,
        )
        axes.annotate(
            f"{median(values[key]):.{2 if measure.more_is_better or median(values[key]) < 10 else 1}f}",
            (place, max(values[key])),
            xytext=(0, 6),
            textcoords="offset points",
            ha="center",
            fontsize=8.5,
        )
    axes.set_xticks(range(len(values)), [f"{STYLES[key].label}\nn = {len(runs[key])}" for key in values])
    axes.set_xlim(-0.6, len(values) - 0.4)
    axes.set_ylabel("test accuracy (%)" if measure.more_is_better else f"{measure.label} (%)")
    if measure.more_is_better:
        axes.margins(y=0.15)
    else:
        axes.set_ylim(0, 1.15 * max(max(column) for column in values.values()) or 1)
    tidy(axes)


def _beside_each_other(place: float, count: int) -> list[float]:
    """Places within a box, so that equal runs do not hide each other."""
    width = 0.6 * _BOX_WIDTH
    return [place + width * ((number + 0.5) / count - 0.5) for number in range(count)]


def _lighter(colour: str) -> tuple[float, ...]:
    """The colour, mostly white, so that points and hatches stand out."""
    return tuple(1 - 0.35 * (1 - int(colour[at : at + 2], 16) / 255) for at in (1, 3, 5))
