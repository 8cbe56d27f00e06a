"""The paper's table, made of our own trainings and set beside the published one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import prod
from statistics import fmean, stdev
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from gossamer.errors import GossamerError
from gossamer.paper.compared import COMPARED, ITL, TABLE
from gossamer.paper.outcomes import Outcome
from gossamer.paper.published import (
    AVERAGE_RANKS,
    DATASET_LABELS,
    DATASETS,
    MEASURES,
    PUBLISHED,
    Measure,
    Published,
    best_published_accuracy,
)

__all__ = [
    "Floor",
    "FloorLine",
    "Row",
    "average_ranks",
    "by_method",
    "floor_check",
    "rows",
    "to_json",
    "to_markdown",
    "to_rich",
]

_RANKED = tuple(compared.key for compared in TABLE)


@dataclass(frozen=True)
class Row:
    """One method on one data set: means over its seeds, and the setting that all of them share.

    Standard deviations are those of a sample (divided by n - 1), and 0 for one seed.
    """

    dataset: str
    method: str
    seeds: int
    accuracy: float
    accuracy_std: float
    flops_kept: float
    flops_kept_std: float
    params_kept: float
    params_kept_std: float
    strength: float
    a: float | None
    s: float | None
    cost_exponent: float


@dataclass(frozen=True)
class FloorLine:
    """Integrated Tl1 on one data set, against the best published accuracy of all and its own published sizes."""

    dataset: str
    accuracy: float
    accuracy_floor: float
    flops_kept: float
    flops_ceiling: float
    params_kept: float
    params_ceiling: float

    @property
    def accuracy_holds(self) -> bool:
        """Whether ours is at least the best of the paper's four methods."""
        return self.accuracy >= self.accuracy_floor

    @property
    def flops_hold(self) -> bool:
        """Whether ours are at most those of the paper's integrated Tl1."""
        return self.flops_kept <= self.flops_ceiling

    @property
    def params_hold(self) -> bool:
        """Whether ours are at most those of the paper's integrated Tl1."""
        return self.params_kept <= self.params_ceiling


@dataclass(frozen=True)
class Floor:
    """All data sets that the paper has, too.

    Attributes:
        lines: One for each.
        flops_ratio: Geometric mean over them of ours / published.
        params_ratio: The same for the parameters.
    """

    lines: tuple[FloorLine, ...]
    flops_ratio: float
    params_ratio: float


def by_method(outcomes: Iterable[Outcome]) -> dict[tuple[str, str], list[Outcome]]:
    """Gather the seeds of each data set and method, both in the paper's order; they may differ in nothing else."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        config = outcome.job.config
        place = (config.dataset, outcome.job.key)
        _check(outcome, groups.setdefault(place, []))
        groups[place].append(outcome)
    ordered = sorted(groups, key=lambda place: (_dataset_order(place[0]), list(COMPARED).index(place[1])))
    return {place: sorted(groups[place], key=lambda outcome: outcome.job.config.seed) for place in ordered}


def _dataset_order(dataset: str) -> tuple[int, str]:
    return (DATASETS.index(dataset) if dataset in DATASETS else len(DATASETS), dataset)


def _check(outcome: Outcome, before: Sequence[Outcome]) -> None:
    key, config = outcome.job.key, outcome.job.config
    if key not in COMPARED:
        raise GossamerError(f"The table compares {', '.join(COMPARED)}; received an outcome of {key!r}.")
    where = f"{config.dataset}, {key}, seed {config.seed}"
    if config.validation_fraction:
        raise GossamerError(
            f"{where} was measured on validation images (`validation_fraction` {config.validation_fraction}); "
            "the table takes trainings on all training images."
        )
    for other in before:
        if other.job.config.seed == config.seed:
            raise GossamerError(f"{where} is there twice. Leave one of the two outcomes out.")
    if before:
        differences = config.differences(replace(before[0].job.config, seed=config.seed))
        if differences:
            raise GossamerError(
                f"{where} has another setting than seed {before[0].job.config.seed}: {', '.join(differences)}. "
                "A row of the table is one setting; leave the outcomes of the other out."
            )


def rows(outcomes: Sequence[Outcome]) -> list[Row]:
    """Make one row of each data set and method, both in the paper's order, references last."""
    return [_row(dataset, method, seeds) for (dataset, method), seeds in by_method(outcomes).items()]


def _row(dataset: str, method: str, outcomes: Sequence[Outcome]) -> Row:
    figures: dict[str, float] = {}
    for measure in MEASURES:
        values = [float(getattr(outcome.result, measure.key)) for outcome in outcomes]
        figures[measure.key] = fmean(values)
        figures[f"{measure.key}_std"] = stdev(values) if len(values) > 1 else 0.0
    config = outcomes[0].job.config
    return Row(
        dataset,
        method,
        len(outcomes),
        **figures,
        strength=config.strength,
        a=config.a,
        s=config.s,
        cost_exponent=config.cost_exponent,
    )


def average_ranks(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Mean rank of each of the paper's four methods in each measure, 1 the best, equal ones sharing their mean rank.

    Over the data sets in which all four are present; empty when there is none.
    """
    complete = _complete(rows)
    if not complete:
        return {}
    ranks = {measure.key: [_ranks(group, measure) for group in complete.values()] for measure in MEASURES}
    return {
        method: {key: fmean(per_dataset[method] for per_dataset in many) for key, many in ranks.items()}
        for method in _RANKED
    }


def _complete(rows: Sequence[Row]) -> dict[str, dict[str, Row]]:
    """Rows of the four methods by data set, where all four are there."""
    groups = {dataset: {row.method: row for row in group} for dataset, group in _by_dataset(rows)}
    return {
        dataset: {method: group[method] for method in _RANKED}
        for dataset, group in groups.items()
        if all(method in group for method in _RANKED)
    }


def _by_dataset(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    for dataset in sorted({row.dataset for row in rows}, key=_dataset_order):
        yield dataset, [row for row in rows if row.dataset == dataset]


def _ranks(group: Mapping[str, Row], measure: Measure) -> dict[str, float]:
    sign = -1 if measure.more_is_better else 1
    badness = {method: sign * _mean(row, measure) for method, row in group.items()}
    values = list(badness.values())
    # Equal ones take the places from 1 + better to better + equal: their mean is this.
    return {
        method: sum(other < value for other in values) + (values.count(value) + 1) / 2
        for method, value in badness.items()
    }


def _mean(figures: Row | Published, measure: Measure) -> float:
    return float(getattr(figures, measure.key))


def floor_check(rows: Sequence[Row]) -> Floor | None:
    """Compare integrated Tl1 with what the paper reports, on the data sets that both have; none when there is none."""
    lines = []
    for row in rows:
        published = PUBLISHED.get((row.dataset, ITL.key))
        if row.method == ITL.key and published is not None:
            lines.append(
                FloorLine(
                    row.dataset,
                    row.accuracy,
                    best_published_accuracy(row.dataset),
                    row.flops_kept,
                    published.flops_kept,
                    row.params_kept,
                    published.params_kept,
                )
            )
    if not lines:
        return None
    return Floor(
        tuple(lines),
        prod(line.flops_kept / line.flops_ceiling for line in lines) ** (1 / len(lines)),
        prod(line.params_kept / line.params_ceiling for line in lines) ** (1 / len(lines)),
    )


def to_json(rows: Sequence[Row]) -> dict[str, Any]:
    """Return ``{"rows": [...]}`` with the rows of the paper's four methods, without their settings."""
    settings = {"strength", "a", "s", "cost_exponent"}
    names = [field.name for field in fields(Row) if field.name not in settings]
    return {"rows": [{name: getattr(row, name) for name in names} for row in rows if row.method in _RANKED]}


@dataclass(frozen=True)
class _Section:
    """A table as text, and what has to be said of it."""

    title: str
    headings: Sequence[str]
    lines: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True)
class _Layout:
    """How much room there is.

    Attributes:
        bold: Makes a text stand out.
        wide: Whether published figures have columns of their own, or stand in brackets behind ours.
    """

    bold: str
    wide: bool

    def headings(self, ours: str, published: str = "published") -> list[str]:
        return [ours, published] if self.wide else [ours]

    def cells(self, ours: str, published: str | None, best: bool = False) -> list[str]:
        shown = self.bold.format(ours) if best else ours
        if self.wide:
            return [shown, published or "-"]
        return [shown if published is None else f"{shown} ({published})"]

    def title(self, title: str) -> str:
        return title if self.wide else f"{title} (published in brackets)"


def to_markdown(rows: Sequence[Row]) -> str:
    """Write ours beside the published, data set by data set, then the average ranks and the check of the floor."""
    note = (
        "Mean ± standard deviation over the seeds in percent (ours that of a sample, divided by n - 1; the paper does "
        "not say which), the best of ours in bold. Kept parameters and FLOP (multiply-adds) are those with a weight "
        "that is not zero, as part of the whole network. The paper does not give the widths of its networks, so they "
        "need not be ours. λ is the strength, c its exponent of the layer's cost."
    )
    return "\n".join([note, "", *(_markdown(section) for section in _sections(rows, _Layout("**{}**", wide=True)))])


def to_rich(rows: Sequence[Row]) -> list[Table]:
    """Make the same tables for a terminal of 80 columns: without settings and the published standard deviations."""
    return [_rich(section) for section in _sections(rows, _Layout("[bold]{}[/bold]", wide=False))]


def _markdown(section: _Section) -> str:
    lines = [section.headings, [":--", *["--:"] * (len(section.headings) - 1)], *section.lines]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"### {section.title}\n\n{table}\n" + (f"\n{section.note}\n" if section.note else "")


def _rich(section: _Section) -> Table:
    table = Table(
        title=section.title,
        title_justify="left",
        title_style="bold",
        caption=section.note or None,
        caption_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    for number, heading in enumerate(section.headings):
        table.add_column(heading, justify="right" if number else "left", no_wrap=True)
    for line in section.lines:
        table.add_row(*line)
    return table


def _sections(rows: Sequence[Row], layout: _Layout) -> Iterator[_Section]:
    for dataset, group in _by_dataset(rows):
        yield _results(dataset, group, layout)
    if ranks := average_ranks(rows):
        yield _rank_section(ranks, list(_complete(rows)), layout)
    if floor := floor_check(rows):
        yield _floor_section(floor, layout)


def _results(dataset: str, rows: Sequence[Row], layout: _Layout) -> _Section:
    headings = ["method", "setting", "seeds"] if layout.wide else ["method"]
    for measure in MEASURES:
        headings += layout.headings(f"{measure.label} (%)" if layout.wide else measure.label)
    lines = []
    for row in rows:
        line = [COMPARED[row.method].label]
        if layout.wide:
            line += [_setting(row), str(row.seeds)]
        published = PUBLISHED.get((dataset, row.method))
        for measure in MEASURES:
            ours = _mean_and_std(row, measure)
            theirs = None
            if published is not None:
                theirs = _mean_and_std(published, measure) if layout.wide else _percent(_mean(published, measure))
            # Narrow, every column counts.
            line += layout.cells(ours if layout.wide else ours.replace(" ", ""), theirs, _is_best(row, rows, measure))
        lines.append(line)
    if layout.wide:
        return _Section(_label(dataset), headings, lines)
    seeds = " or ".join(str(count) for count in sorted({row.seeds for row in rows}))
    return _Section(layout.title(f"{_label(dataset)}, % over {seeds} seeds"), headings, lines)


def _is_best(row: Row, rows: Sequence[Row], measure: Measure) -> bool:
    best = max if measure.more_is_better else min
    ranked = [other for other in rows if other.method in _RANKED]
    return row in ranked and _mean(row, measure) == best(_mean(other, measure) for other in ranked)


def _rank_section(ranks: Mapping[str, Mapping[str, float]], datasets: Sequence[str], layout: _Layout) -> _Section:
    headings = ["method"]
    for measure in MEASURES:
        headings += layout.headings(measure.label)
    lines = []
    for method in _RANKED:
        line = [COMPARED[method].label]
        for measure in MEASURES:
            ours = ranks[method][measure.key]
            best = ours == min(other[measure.key] for other in ranks.values())
            line += layout.cells(f"{ours:.2g}", f"{AVERAGE_RANKS[method][measure.key]:.2g}", best)
        lines.append(line)
    note = f"Ours over {', '.join(_label(dataset) for dataset in datasets)}; published over the five of the paper."
    return _Section(layout.title("Average ranks, 1 the best"), headings, lines, note)


def _floor_section(floor: Floor, layout: _Layout) -> _Section:
    headings = ["data set", *layout.headings("accuracy (%)", "best published")]
    headings += [*layout.headings("FLOP kept (%)"), *layout.headings("parameters kept (%)")]
    lines = [
        [
            _label(line.dataset),
            *layout.cells(_verdict(line.accuracy, line.accuracy_holds), _percent(line.accuracy_floor)),
            *layout.cells(_verdict(line.flops_kept, line.flops_hold), _percent(line.flops_ceiling)),
            *layout.cells(_verdict(line.params_kept, line.params_hold), _percent(line.params_ceiling)),
        ]
        for line in floor.lines
    ]
    note = (
        "Accuracy against the best of the paper's four methods, FLOP and parameters against its integrated Tl1; ✗ "
        f"where the published figure is better. Ours / published, geometric mean over {_count(floor.lines)}: "
        f"FLOP {floor.flops_ratio:.3f}, parameters {floor.params_ratio:.3f}."
    )
    return _Section(layout.title("Integrated Tl1 against the paper"), headings, lines, note)


def _count(lines: Sequence[FloorLine]) -> str:
    return "one data set" if len(lines) == 1 else f"{len(lines)} data sets"


def _verdict(value: float, holds: bool) -> str:
    return f"{_percent(value)} {'✓' if holds else '✗'}"


def _label(dataset: str) -> str:
    return DATASET_LABELS.get(dataset, dataset)


def _setting(row: Row) -> str:
    parts = [("λ", row.strength or None), ("a", row.a), ("s", row.s), ("c", row.cost_exponent or None)]
    return ", ".join(f"{name} {value:g}" for name, value in parts if value is not None) or "-"


def _mean_and_std(figures: Row | Published, measure: Measure) -> str:
    mean, std = _mean(figures, measure), float(getattr(figures, f"{measure.key}_std"))
    return f"{_percent(mean)} ± {100 * std:.{_digits(mean)}f}"


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.{_digits(fraction)}f}"


def _digits(fraction: float) -> int:
    """Decimals of a percentage: the small ones are what the table is about."""
    return 2 if fraction >= 0.01 else 3
