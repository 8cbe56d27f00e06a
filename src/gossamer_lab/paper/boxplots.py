"""Box plots of the table's runs on PENDIGITS and CIFAR-10."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gossamer.errors import GossamerError
from gossamer_lab.paper.comparison import compared_trainings
from gossamer_lab.paper.experiments import Experiment
from gossamer_lab.paper.methods import METHODS, TABLE
from gossamer_lab.paper.outcomes import Outcome
from gossamer_lab.paper.published import DATASET_LABELS, MEASURES, Measure
from gossamer_lab.paper.runner import OUTCOMES
from gossamer_lab.paper.table import by_method
from gossamer_lab.reporting import style
from gossamer_lab.reporting.style import add_caption, new_figure, save, tidy

__all__ = ["EXPERIMENT", "boxplots_figure"]

_DATASETS = ("pendigits", "cifar-10")
_BOX_WIDTH = 0.5


def boxplots_figure(outcomes: Sequence[Outcome], path: Path) -> Figure:
    """Draw accuracy, kept MACs and kept weights on PENDIGITS and CIFAR-10, as far as there are outcomes.

    Returns:
        The figure, after it was written.
    """
    groups = by_method(outcomes)
    datasets = [name for name in _DATASETS if any((name, method.key) in groups for method in TABLE)]
    if not datasets:
        raise GossamerError(f"The box plots need outcomes on {' or '.join(_DATASETS)}; received none.")
    with new_figure(10.5, 0.9 + 3.2 * len(datasets)) as figure:
        panels = figure.subplots(len(datasets), len(MEASURES), squeeze=False)
        for line, dataset in zip(panels, datasets, strict=True):
            runs = {method.key: groups[dataset, method.key] for method in TABLE if (dataset, method.key) in groups}
            for axes, measure in zip(line, MEASURES, strict=True):
                _draw(axes, runs, measure)
                axes.set_title(DATASET_LABELS[dataset])
        add_caption(
            figure,
            "Each point is one run (n seeds per method); the number is the median. Boxes: interpolated quartiles and "
            "median; whiskers: the last run within 1.5 times the interquartile range. Accuracy axes do not start at 0. "
            "SGL: sparse group lasso; CGES: combined group and exclusive sparsity; ITL: integrated transformed l1.",
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
        showfliers=False,  # all runs are drawn as points
        medianprops={"color": "black", "linewidth": 1.6},
    )
    for position, (key, box) in enumerate(zip(values, boxes["boxes"], strict=True)):
        look = style.METHODS[key]
        box.set(facecolor=_lighter(look.colour), edgecolor=look.colour, hatch=look.hatch)
        axes.plot(
            _spread(position, len(values[key])),
            values[key],
            linestyle="",
            marker=look.marker,
            markersize=5,
            color=look.colour,
            markeredgecolor="black",
            markeredgewidth=0.6,
            zorder=4,
        )
        axes.annotate(
            f"{median(values[key]):.{2 if measure.more_is_better or median(values[key]) < 10 else 1}f}",
            (position, max(values[key])),
            xytext=(0, 6),
            textcoords="offset points",
            ha="center",
            fontsize=8.5,
        )
    axes.set_xticks(range(len(values)), [f"{METHODS[key].short}\nn = {len(runs[key])}" for key in values])
    axes.set_xlim(-0.6, len(values) - 0.4)
    axes.set_ylabel("test accuracy (%)" if measure.more_is_better else f"{measure.label} (%)")
    if measure.more_is_better:
        axes.margins(y=0.15)
    else:
        axes.set_ylim(0, 1.15 * max(max(column) for column in values.values()) or 1)
    tidy(axes)


def _spread(position: float, count: int) -> list[float]:
    """Spread points over the width of a box, so that equal runs do not hide each other."""
    width = 0.6 * _BOX_WIDTH
    return [position + width * ((number + 0.5) / count - 0.5) for number in range(count)]


def _lighter(colour: str) -> tuple[float, ...]:
    """Mix the colour with white, so that points and hatches stand out."""
    return tuple(1 - 0.35 * (1 - int(colour[at : at + 2], 16) / 255) for at in (1, 3, 5))


EXPERIMENT = Experiment(
    folder="boxplots",
    datasets=_DATASETS,
    trainings=lambda request: compared_trainings(request, datasets=_DATASETS),
    kind=lambda request: OUTCOMES,
    read=lambda request: request.outcomes(*(f"table/{dataset}.jsonl" for dataset in request.select(_DATASETS))),
    outputs={"boxplots.png": boxplots_figure},
)
