"""Accuracy against size, for each method over its strengths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from gossamer.errors import GossamerError
from gossamer_lab.paper.compared import DRAWN
from gossamer_lab.paper.published import DATASET_LABELS, MEASURES, Measure
from gossamer_lab.paper.style import STYLES, add_caption, new_figure, save, tidy

__all__ = ["TRADEOFF_DATASETS", "TradeoffPoint", "frontier", "tradeoff_figure"]

TRADEOFF_DATASETS = ("mnist", "pendigits")
_METHODS = tuple(compared.key for compared in DRAWN)
_SIZES = tuple(measure for measure in MEASURES if not measure.more_is_better)
# Errors beyond this multiple of the lowest are cut off: collapsed networks would press all others into one line.
_WORST_ERROR = 5.0
# A network without any weights has no place on a log scale; this is less than one weight of any network here.
_LEAST_PERCENT = 1e-5


@dataclass(frozen=True)
class TradeoffPoint:
    """How one training of a method ended."""

    dataset: str
    method: str
    accuracy: float
    flops_kept: float
    params_kept: float


def frontier(points: Iterable[TradeoffPoint], size: str) -> list[TradeoffPoint]:
    """Leave the points that no other one beats: from the smallest on, each more accurate than all before it.

    Args:
        points: Of one method on one data set.
        size: The field that says how large a network is: ``flops_kept`` or ``params_kept``.
    """
    kept: list[TradeoffPoint] = []
    for point in sorted(points, key=lambda point: (getattr(point, size), -point.accuracy)):
        if not kept or point.accuracy > kept[-1].accuracy:
            kept.append(point)
    return kept


def tradeoff_figure(points: Sequence[TradeoffPoint], path: Path, measured_on: str = "") -> Figure:
    """Draw accuracy over kept FLOP and over kept parameters on MNIST and PENDIGITS, as far as they are there.

    Args:
        points: The trainings, in any order.
        path: Of the PNG file.
        measured_on: The images that the accuracy is of, for the axes: ``test images`` or ``validation images``.

    Returns:
        The figure as it was written.
    """
    for point in points:
        if point.method not in _METHODS:
            raise GossamerError(f"The trade-off compares {', '.join(_METHODS)}; received {point.method!r}.")
    datasets = [name for name in TRADEOFF_DATASETS if any(point.dataset == name for point in points)]
    if not datasets:
        raise GossamerError(f"The trade-off is drawn for {' and '.join(TRADEOFF_DATASETS)}; no point is of either.")
    with new_figure(10.5, 1.5 + 3.4 * len(datasets)) as figure:
        panels = figure.subplots(len(datasets), len(_SIZES), squeeze=False)
        for line, dataset in zip(panels, datasets, strict=True):
            for axes, size in zip(line, _SIZES, strict=True):
                _draw(axes, [point for point in points if point.dataset == dataset], size)
                axes.set_title(DATASET_LABELS[dataset])
                axes.set_ylabel(f"accuracy on the {measured_on} (%)" if measured_on else "accuracy (%)")
        _add_legend(figure, panels.flat)
        add_caption(
            figure,
            "Each point is a training with its own setting; a line joins those of a method that no other of "
            "that method matches in both accuracy and size; those left out are hollow. Trainings with more than five "
            "times the lowest error lie below the axes; their number is given. l2 zeroes nothing: its point lies at "
            "100 %. SGL: sparse group lasso; CGES: combined group and exclusive sparsity; ITL: integrated transformed "
            "l1.",
        )
        save(figure, path)
    return figure


def _add_legend(figure: Figure, panels: Iterable[Axes]) -> None:
    """One for all panels; a method may be missing in some of them."""
    lines = {line.get_label(): line for axes in panels for line in axes.get_lines()}
    labels = [STYLES[method].label for method in _METHODS if STYLES[method].label in lines]
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
    # A perfect best would leave no room below it.
    least = best - (_WORST_ERROR - 1) * max(1 - best, 0.0025)
    shown = [point for point in points if point.accuracy >= least]
    for method in _METHODS:
        of_method = [point for point in points if point.method == method]
        if of_method:
            _draw_method(axes, method, of_method, size)
    _set_limits(axes, shown, size)
    _say_how_many_lie_below(axes, [point for point in points if point.accuracy < least])
    axes.set_xlabel(f"{size.label} (%), log scale")
    tidy(axes)


def _draw_method(axes: Axes, method: str, points: Sequence[TradeoffPoint], size: Measure) -> None:
    style = STYLES[method]
    joined = frontier(points, size.key)
    axes.plot(
        [_percent(point, size) for point in joined],
        [100 * point.accuracy for point in joined],
        color=style.colour,
        linestyle=style.line,
        marker=style.marker,
        markersize=5.5,
        linewidth=1.6,
        label=style.label,
        zorder=3,
    )
    beaten = [point for point in points if point not in joined]
    axes.plot(
        [_percent(point, size) for point in beaten],
        [100 * point.accuracy for point in beaten],
        color=style.colour,
        linestyle="",
        marker=style.marker,
        markersize=5.5,
        markerfacecolor="white",
        zorder=2,
    )


def _percent(point: TradeoffPoint, size: Measure) -> float:
    return max(100 * float(getattr(point, size.key)), _LEAST_PERCENT)


def _set_limits(axes: Axes, shown: Sequence[TradeoffPoint], size: Measure) -> None:
    low, high = min(point.accuracy for point in shown), max(point.accuracy for point in shown)
    room = 8 * max(high - low, 0.001)
    axes.set_ylim(100 * low - 1.5 * room, 100 * high + room)
    axes.set_xlim(0.8 * min(_percent(point, size) for point in shown), 130)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())


def _say_how_many_lie_below(axes: Axes, below: Sequence[TradeoffPoint]) -> None:
    counts = Counter(point.method for point in below)
    if counts:
        names = ", ".join(f"{counts[method]} {STYLES[method].label}" for method in _METHODS if counts[method])
        axes.text(0.99, 0.015, f"below: {names}", transform=axes.transAxes, ha="right", va="bottom", fontsize=8.5)
