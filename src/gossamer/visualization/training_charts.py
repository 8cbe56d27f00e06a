"""Charts of training runs: accuracy and size over the epochs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from gossamer.visualization.charts import DASHES, Chart, kept_axis, literal, percent_axis
from gossamer.visualization.data import Epoch, Page, Run
from gossamer.visualization.formatting import percent
from gossamer.visualization.markup import Column, Table
from gossamer.visualization.themes import SHADE

__all__ = ["training_charts"]

_MOST_CURVES = len(DASHES)


def training_charts(page: Page) -> list[Chart]:
    """Accuracy, then kept weights and MACs, over the epochs; those of the two that were recorded."""
    drawn = [run for run in page.runs if run.history][:_MOST_CURVES]
    accuracy = [run for run in drawn if any(epoch.accuracy is not None for epoch in run.history)]
    size = [run for run in drawn if any(epoch.params_kept is not None for epoch in run.history)]
    charts = []
    if accuracy:
        charts.append(_accuracy_chart(page.score, accuracy))
    if size:
        charts.append(_size_chart(size))
    return charts


def _accuracy_chart(score: str, runs: Sequence[Run]) -> Chart:
    recorded = [epoch.accuracy for run in runs for epoch in run.history if epoch.accuracy is not None]
    late = [epoch.accuracy for run in runs for epoch in _late(run.history) if epoch.accuracy is not None]
    low, high = 100 * min(late or recorded), 100 * max(recorded)
    margin = max(0.08 * (high - low), 0.2)
    axis = {**percent_axis(literal(score)), "range": [low - margin, min(high + margin, 100.5)]}
    traces = [_curve(run, number, _accuracy_of) for number, run in enumerate(runs)]
    below = 100 * min(recorded) < low - margin
    words = _ends(runs, _accuracy_of) + (" The first epochs lie below the axis." if below else "")
    table = _table("accuracy-table", f"{score.capitalize()} after each epoch", runs, _accuracy_of)
    figure = {"data": traces, "layout": _layout(runs[0], axis)}
    return Chart("accuracy", f"{score.capitalize()} over training", words, 320, {"": figure}, [table])


def _size_chart(runs: Sequence[Run]) -> Chart:
    traces = [_curve(run, number, _params_kept_of) for number, run in enumerate(runs)]
    axis = kept_axis(epoch.params_kept for run in runs for epoch in run.history)
    tables = [
        _table("weights-table", "Weights kept after each epoch", runs, _params_kept_of),
        _table("macs-table", "MACs kept after each epoch", runs, _flops_kept_of),
    ]
    words = f"Weights that are not zero. {_ends(runs, _params_kept_of)}"
    figure = {"data": traces, "layout": _layout(runs[0], axis)}
    return Chart("size", "Weights kept over training", words, 320, {"": figure}, tables)


def _accuracy_of(epoch: Epoch) -> float | None:
    return epoch.accuracy


def _params_kept_of(epoch: Epoch) -> float | None:
    return epoch.params_kept


def _flops_kept_of(epoch: Epoch) -> float | None:
    return epoch.flops_kept


def _ends(runs: Sequence[Run], value: Callable[[Epoch], float | None]) -> str:
    return "At the end: " + ", ".join(f"{run.label} {percent(_last(run, value))}" for run in runs) + "."


def _layout(main: Run, axis: dict[str, Any]) -> dict[str, Any]:
    """Epochs from left to right; a shaded area where the penalty was off in the run that the page is about."""
    shapes = []
    for held, epochs in groupby(main.history, key=lambda epoch: epoch.held):
        if held:
            numbers = [epoch.epoch for epoch in epochs]
            shapes.append(_area(numbers[0] - 0.5, numbers[-1] + 0.5))
    return {
        "xaxis": {"title": {"text": "epoch"}, "rangemode": "normal"},
        "yaxis": axis,
        "hovermode": "x unified",
        "showlegend": True,
        "shapes": shapes,
    }


def _area(start: float, end: float) -> dict[str, Any]:
    label = {"text": "penalty off", "textangle": -90, "font": {"size": 12}}  # upright: the area may be narrow
    return {
        "type": "rect", "x0": start, "x1": end, "y0": 0, "y1": 1, "yref": "paper",
        "line": {"width": 0}, "fillcolor": SHADE, "layer": "below", "label": label,
    }  # fmt: skip


def _curve(run: Run, number: int, value: Callable[[Epoch], float | None]) -> dict[str, Any]:
    values = [value(epoch) for epoch in run.history]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": literal(run.label),
        "x": [epoch.epoch for epoch in run.history],
        "y": [None if one is None else 100 * one for one in values],
        "line": {"dash": DASHES[number], "width": 2.5 if number == 0 else 1.6},
        "hovertemplate": "%{y:.2f}%",
    }


def _table(name: str, caption: str, runs: Sequence[Run], value: Callable[[Epoch], float | None]) -> Table:
    numbers = sorted({epoch.epoch for run in runs for epoch in run.history})
    found = [{epoch.epoch: value(epoch) for epoch in run.history} for run in runs]
    rows = [[str(number), *(percent(one.get(number)) for one in found)] for number in numbers]
    return Table(name, caption, [Column("epoch"), *(Column(run.label) for run in runs)], rows)


def _late(history: Sequence[Epoch]) -> Sequence[Epoch]:
    """Without the first quarter, which would press all that follows into one line at the top."""
    return history[math.floor(len(history) / 4) :]


def _last(run: Run, value: Callable[[Epoch], float | None]) -> float | None:
    found = [value(epoch) for epoch in run.history]
    return next((one for one in reversed(found) if one is not None), None)
