"""The trade-off between accuracy and size: of a few runs beside each other, and of the runs of a study."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from gossamer.visualization.charts import SYMBOLS, Chart, Figure, kept_axis, literal, percent_axis
from gossamer.visualization.data import Page, Run, Series, Study
from gossamer.visualization.formatting import percent
from gossamer.visualization.markup import Column, Table
from gossamer.visualization.themes import GREY

__all__ = ["SIZES", "pareto_front", "study_chart", "study_table", "tradeoff_chart", "tradeoff_table"]

Size: TypeAlias = Callable[[Run], float | None]

SIZES: dict[str, Size] = {
    "weights kept": lambda run: run.params_kept,
    "MACs kept": lambda run: run.flops_kept,
    "MACs after shrink": lambda run: run.dense_flops,
}
"""What the accuracy is drawn against, as fractions of the dense network."""

_WEIGHTS = "weights kept"
_MOST_NAMED = 4


def tradeoff_chart(page: Page) -> Chart | None:
    """Accuracy against kept weights, a point for each run; None where there are fewer than two points."""
    runs = [run for run in page.runs if run.accuracy is not None and run.params_kept is not None]
    if len(runs) < 2:
        return None
    # A few runs have the colours of their curves; of many, only the first has its own.
    sets = [[run] for run in runs] if len(runs) <= len(SYMBOLS) else [runs[:1], runs[1:]]
    series = [Series(one[0].label if len(one) == 1 else "other runs", tuple(one)) for one in sets]
    front = pareto_front(runs)
    named = f": {', '.join(run.label for run in front)}" if len(front) <= _MOST_NAMED else ""
    words = f"Up and to the left is better. {len(front)} of {len(runs)} runs lie on the Pareto front{named}."
    title = f"{page.score.capitalize()} against weights kept"
    return Chart("tradeoff", title, words, 360, {"": _figure(series, _WEIGHTS, page.score)})


def tradeoff_table(page: Page) -> Table:
    """The numbers of all runs."""
    columns = [Column("run", number=False), Column(page.score), Column("weights kept"), Column("MACs kept")]
    rows = [[run.label, percent(run.accuracy), percent(run.params_kept), percent(run.flops_kept)] for run in page.runs]
    return Table("tradeoff-table", "Runs", columns, rows)


def study_chart(study: Study, score: str) -> Chart | None:
    """Accuracy against each size that all runs have, the reader chooses which; None where there is no run."""
    runs = study.runs
    if not runs:
        return None
    front = pareto_front(runs)
    words = f"Up and to the left is better. {len(front)} of {len(runs)} {study.name}s lie on the Pareto front."
    drawn = [replace(one, runs=tuple(run for run in one.runs if run in runs)) for one in study.series]
    figures = {name: _figure(drawn, name, score) for name in _recorded(runs)}
    title = f"{score.capitalize()} against size"
    return Chart("tradeoff", title, words, 420, figures, choice="Size")


def study_table(study: Study, score: str) -> Table:
    """The settings and the numbers of all runs, in the order in which they are given."""
    runs = [(series.label, run) for series in study.series for run in series.runs]
    settings = list(dict.fromkeys(name for _, run in runs for name, _ in run.settings))
    sizes = _recorded(study.runs)
    many = len(study.series) > 1
    columns = [
        Column(study.name, number=False), *([Column("series", number=False)] if many else []),
        *map(Column, settings), Column(score), *map(Column, sizes), Column("on the front", number=False),
    ]  # fmt: skip
    front = set(map(id, pareto_front(study.runs)))
    rows = []
    for label, run in runs:
        own = dict(run.settings)
        numbers = [own.get(name, "") for name in settings]
        numbers += [percent(run.accuracy), *(percent(SIZES[name](run)) for name in sizes)]
        rows.append([run.label, *([label] if many else []), *numbers, "yes" if id(run) in front else ""])
    return Table("runs-table", f"{score.capitalize()} and size of each {study.name}", columns, rows)


def pareto_front(runs: Sequence[Run], size: Size = SIZES[_WEIGHTS]) -> list[Run]:
    """The runs that no other run beats: none has at least this accuracy at a smaller size, or more at the same."""
    front: list[Run] = []
    for run in sorted(runs, key=lambda run: (size(run) or 0.0, -(run.accuracy or 0.0))):
        if not front or (run.accuracy or 0.0) > (front[-1].accuracy or 0.0):
            front.append(run)
    return front


def _recorded(runs: Sequence[Run]) -> list[str]:
    """The sizes that every run has."""
    return [name for name, size in SIZES.items() if runs and all(size(run) is not None for run in runs)]


def _figure(series: Sequence[Series], name: str, score: str) -> Figure:
    size = SIZES[name]
    runs = [run for one in series for run in one.runs if run.accuracy is not None and size(run) is not None]
    front = pareto_front(runs, size)
    traces = [_points(one, number, score, size) for number, one in enumerate(series)]
    if len(front) > 1:
        traces.append(_front_line(front, size))
    layout = {
        "xaxis": kept_axis((size(run) for run in runs), name),
        "yaxis": percent_axis(literal(score)),
        "showlegend": True,
        "hovermode": "closest",
    }
    return {"data": traces, "layout": layout}


def _points(series: Series, number: int, score: str, size: Size) -> dict[str, Any]:
    runs = [run for run in series.runs if run.accuracy is not None and size(run) is not None]
    return {
        "type": "scatter",
        "mode": "lines+markers" if series.joined else "markers",
        "name": literal(series.label),
        "x": [100 * (size(run) or 0.0) for run in runs],
        "y": [100 * (run.accuracy or 0.0) for run in runs],
        "customdata": [_hover(run, score) for run in runs],
        "marker": {"size": 13 if number == 0 and len(runs) == 1 else 10, "symbol": SYMBOLS[number % len(SYMBOLS)]},
        "cliponaxis": False,
        "zorder": number + 1,  # smaller markers above the large one
        "hovertemplate": "%{customdata}<extra></extra>",
    }


def _hover(run: Run, score: str) -> str:
    facts = [*run.settings, (score, percent(run.accuracy))]
    facts += [(name, percent(size(run))) for name, size in SIZES.items() if size(run) is not None]
    return "<br>".join([f"<b>{literal(run.label)}</b>", *(literal(f"{name} {value}") for name, value in facts)])


def _front_line(front: Sequence[Run], size: Size) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "Pareto front",
        "x": [100 * (size(run) or 0.0) for run in front],
        "y": [100 * (run.accuracy or 0.0) for run in front],
        "line": {"color": GREY, "width": 1, "dash": "dot", "shape": "hv"},
        "hoverinfo": "skip",
        "zorder": 0,
    }
