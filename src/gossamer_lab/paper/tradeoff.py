"""The trade-off between accuracy and size, over the strengths of each method."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gossamer.errors import GossamerError
from gossamer_lab.paper.experiments import Experiment, Request
from gossamer_lab.paper.methods import L2, METHODS, PLOTTED, TABLE
from gossamer_lab.paper.plan import Training
from gossamer_lab.paper.published import DATASET_LABELS, MEASURES, Measure
from gossamer_lab.paper.recipes import OURS
from gossamer_lab.paper.runner import OUTCOMES
from gossamer_lab.paper.searches import searches
from gossamer_lab.reporting import style
from gossamer_lab.reporting.style import add_caption, log_percent, new_figure, save, tidy

__all__ = ["EXPERIMENT", "L2_PARAMETERS", "TradeoffPoint", "frontier", "tradeoff_figure"]

_DATASETS = ("mnist", "pendigits")
# Multiples of the tuned strength. l2 produces no zeros and has one strength.
_FACTORS = (1 / 8, 1 / 4, 1 / 2, 1.0, 2.0)
L2_PARAMETERS = (("strength", 1e-4),)

_METHODS = tuple(method.key for method in PLOTTED)
_SIZES = tuple(measure for measure in MEASURES if not measure.more_is_better)
# Errors above this multiple of the lowest are not drawn: collapsed networks would compress the axis.
_WORST_ERROR = 5.0
# For networks without any weights, which have no place on a log scale: less than one weight of any network here.
_LEAST_PERCENT = 1e-5


def _trainings(request: Request) -> list[Training]:
    recipe = replace(OURS, quick=request.quick)
    factors = (1.0,) if request.quick else _FACTORS
    trainings = []
    for dataset in request.select(_DATASETS):
        file = f"tradeoff/{dataset}.jsonl"
        trainings.append(Training(file, L2.key, dataset, L2, recipe, 0, parameters=L2_PARAMETERS))
        trainings += [
            Training(file, method.key, dataset, method, recipe, 0, searches(dataset, method, recipe), factor=factor)
            for method in TABLE
            for factor in factors
        ]
    return trainings


@dataclass(frozen=True)
class TradeoffPoint:
    """Accuracy and size of one training."""

    dataset: str
    method: str
    accuracy: float
    flops_kept: float
    params_kept: float


def frontier(points: Iterable[TradeoffPoint], size: str) -> list[TradeoffPoint]:
    """Return the Pareto front, ordered by size.

    Args:
        points: Points of one method on one data set.
        size: Field of the size: `flops_kept` or `params_kept`.
    """
    front: list[TradeoffPoint] = []
    for point in sorted(points, key=lambda point: (getattr(point, size), -point.accuracy)):
        if not front or point.accuracy > front[-1].accuracy:
            front.append(point)
    return front


def tradeoff_figure(points: Sequence[TradeoffPoint], path: Path) -> Figure:
    """Draw accuracy over kept MACs and over kept weights on MNIST and PENDIGITS, as far as there are points.

    Returns:
        The figure, after it was written.
    """
    for point in points:
        if point.method not in _METHODS:
            raise GossamerError(f"The trade-off compares {', '.join(_METHODS)}; received {point.method!r}.")
    datasets = [name for name in _DATASETS if any(point.dataset == name for point in points)]
    if not datasets:
        raise GossamerError(f"The trade-off needs points on {' or '.join(_DATASETS)}; received none.")
    with new_figure(10.5, 1.5 + 3.4 * len(datasets)) as figure:
        panels = figure.subplots(len(datasets), len(_SIZES), squeeze=False)
        for line, dataset in zip(panels, datasets, strict=True):
            for axes, size in zip(line, _SIZES, strict=True):
                _draw(axes, [point for point in points if point.dataset == dataset], size)
                axes.set_title(DATASET_LABELS[dataset])
                axes.set_ylabel("test accuracy (%)")
        _add_legend(figure, panels.flat)
        add_caption(
            figure,
            "Each point is one training. Lines join the Pareto front of a method; its other points are hollow. Points "
            "with more than five times the lowest error are not drawn; their number is given. l2 produces no zeros, so "
            "its point lies at 100 %. SGL: sparse group lasso; CGES: combined group and exclusive sparsity; ITL: "
            "integrated transformed l1.",
        )
        save(figure, path)
    return figure


def _add_legend(figure: Figure, panels: Iterable[Axes]) -> None:
    """Add one legend for all panels; a method may be missing in some of them."""
    lines = {line.get_label(): line for axes in panels for line in axes.get_lines()}
    labels = [METHODS[method].short for method in _METHODS if METHODS[method].short in lines]
    figure.legend(
        [lines[label] for label in labels],
        labels,
        loc="outside upper center",
        ncols=len(labels),
        frameon=False,
        handlelength=3.5,
    )


def _draw(axes: Axes, points: Sequence[TradeoffPoint], size: Measure) -> None:
    best = max(point.accuracy for point in points)
    # With a perfect best, the range would be empty.
    least = best - (_WORST_ERROR - 1) * max(1 - best, 0.0025)
    shown = [point for point in points if point.accuracy >= least]
    for method in _METHODS:
        of_method = [point for point in points if point.method == method]
        if of_method:
            _draw_method(axes, method, of_method, size)
    _set_limits(axes, shown, size)
    _note_omitted(axes, [point for point in points if point.accuracy < least])
    axes.set_xlabel(f"{size.label} (%), log scale")
    tidy(axes)


def _draw_method(axes: Axes, method: str, points: Sequence[TradeoffPoint], size: Measure) -> None:
    look = style.METHODS[method]
    front = frontier(points, size.key)
    axes.plot(
        [_percent(point, size) for point in front],
        [100 * point.accuracy for point in front],
        color=look.colour,
        linestyle=look.line,
        marker=look.marker,
        markersize=5.5,
        linewidth=1.6,
        label=METHODS[method].short,
        zorder=3,
    )
    dominated = [point for point in points if point not in front]
    axes.plot(
        [_percent(point, size) for point in dominated],
        [100 * point.accuracy for point in dominated],
        color=look.colour,
        linestyle="",
        marker=look.marker,
        markersize=5.5,
        markerfacecolor="white",
        zorder=2,
    )


def _percent(point: TradeoffPoint, size: Measure) -> float:
    return max(100 * float(getattr(point, size.key)), _LEAST_PERCENT)


def _set_limits(axes: Axes, shown: Sequence[TradeoffPoint], size: Measure) -> None:
    low, high = min(point.accuracy for point in shown), max(point.accuracy for point in shown)
    margin = 8 * max(high - low, 0.001)
    axes.set_ylim(100 * low - 1.5 * margin, 100 * high + margin)
    axes.set_xlim(0.8 * min(_percent(point, size) for point in shown), 130)
    axes.set_xscale("log")
    log_percent(axes.xaxis)


def _note_omitted(axes: Axes, omitted: Sequence[TradeoffPoint]) -> None:
    counts = Counter(point.method for point in omitted)
    if counts:
        names = ", ".join(f"{counts[method]} {METHODS[method].short}" for method in _METHODS if counts[method])
        axes.text(0.99, 0.015, f"not drawn: {names}", transform=axes.transAxes, ha="right", va="bottom", fontsize=8.5)


def _read(request: Request) -> list[TradeoffPoint]:
    outcomes = request.outcomes(*(f"tradeoff/{dataset}.jsonl" for dataset in request.select(_DATASETS)))
    return [
        TradeoffPoint(result.dataset, outcome.job.key, result.accuracy, result.flops_kept, result.params_kept)
        for outcome in outcomes
        for result in [outcome.result]
    ]


EXPERIMENT = Experiment(
    folder="tradeoff",
    datasets=_DATASETS,
    trainings=_trainings,
    kind=lambda request: OUTCOMES,
    read=_read,
    outputs={"tradeoff.png": tradeoff_figure},
)
