"""The paper's table as text, ours beside the published: for a page and for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.table import Table

from gossamer_lab.paper.compared import COMPARED
from gossamer_lab.paper.published import AVERAGE_RANKS, DATASET_LABELS, MEASURES, PUBLISHED, Measure, Published
from gossamer_lab.paper.table import (
    RANKED,
    Floor,
    FloorLine,
    Row,
    average_ranks,
    by_dataset,
    complete_groups,
    floor_check,
    mean_of,
)

__all__ = ["to_markdown", "to_rich"]


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
    """Write ours beside the published, data set by data set, then what is left dense, average ranks and the floor."""
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
    for dataset, group in by_dataset(rows):
        yield _results(dataset, group, layout)
    yield from _small_section(rows)
    if ranks := average_ranks(rows):
        yield _rank_section(ranks, list(complete_groups(rows)), layout)
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
                theirs = _mean_and_std(published, measure) if layout.wide else _percent(mean_of(published, measure))
            # Narrow, every column counts.
            line += layout.cells(ours if layout.wide else ours.replace(" ", ""), theirs, _is_best(row, rows, measure))
        lines.append(line)
    if layout.wide:
        return _Section(_label(dataset), headings, lines)
    seeds = " or ".join(str(count) for count in sorted({row.seeds for row in rows}))
    return _Section(layout.title(f"{_label(dataset)}, % over {seeds} seeds"), headings, lines)


def _is_best(row: Row, rows: Sequence[Row], measure: Measure) -> bool:
    best = max if measure.more_is_better else min
    ranked = [other for other in rows if other.method in RANKED]
    return row in ranked and mean_of(row, measure) == best(mean_of(other, measure) for other in ranked)


def _small_section(rows: Sequence[Row]) -> Iterator[_Section]:
    """What is left when the dead units are gone: the other side of zeros that lie singly."""
    complete = complete_groups(rows)
    if complete:
        headings = ["data set", "method", "weights (%)", "multiply-adds (%)", "file (kB)"]
        lines = [
            [
                _label(dataset),
                COMPARED[row.method].label,
                _percent(row.small_params),
                _percent(row.small_flops),
                f"{row.small_bytes / 1000:.1f}",
            ]
            for dataset, group in complete.items()
            for row in group.values()
        ]
        note = (
            "Means over the seeds. Weights and multiply-adds of the network without its dead units, zeros among them "
            "included, as part of the whole: what a library that knows no sparse layers computes. The file leaves "
            "the zeros out."
        )
        yield _Section("Left by `shrink`", headings, lines, note)


def _rank_section(ranks: Mapping[str, Mapping[str, float]], datasets: Sequence[str], layout: _Layout) -> _Section:
    headings = ["method"]
    for measure in MEASURES:
        headings += layout.headings(measure.label)
    lines = []
    for method in RANKED:
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
    if not row.strength:
        return "-"
    parts = [("λ", row.strength), ("a", row.a), ("s", row.s), ("c", row.cost_exponent or None)]
    return ", ".join(f"{name} {value:g}" for name, value in parts if value is not None)


def _mean_and_std(figures: Row | Published, measure: Measure) -> str:
    mean, std = mean_of(figures, measure), float(getattr(figures, f"{measure.key}_std"))
    if isinstance(figures, Row) and figures.seeds == 1:
        return _percent(mean)
    return f"{_percent(mean)} ± {100 * std:.{_digits(mean)}f}"


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.{_digits(fraction)}f}"


def _digits(fraction: float) -> int:
    """Decimals of a percentage: the small ones are what the table is about."""
    return 2 if fraction >= 0.01 else 3
