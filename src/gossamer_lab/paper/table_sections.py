"""The sections of the paper's table, with the published figures beside ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gossamer_lab.paper.experiments import write_text
from gossamer_lab.paper.methods import METHODS
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
from gossamer_lab.reporting.tables import Bold, Table, percent

__all__ = ["terminal_tables", "to_markdown", "write_markdown"]

_NOTE = (
    "Mean ± standard deviation over the seeds, in percent; best of ours in bold. Our standard deviations are sample "
    "standard deviations (n - 1); the paper does not state which it uses. Kept weights and MACs are those with a "
    "non-zero weight, relative to the full network; the paper calls them parameters and FLOP. The paper does not state "
    "the widths of its networks, so they may differ from ours. λ is the strength, c the cost exponent."
)


@dataclass(frozen=True)
class _Layout:
    """How the published figures are shown.

    Attributes:
        wide: In columns of their own; otherwise in brackets after ours.
    """

    wide: bool

    def headings(self, ours: str, published: str = "published") -> list[str]:
        return [ours, published] if self.wide else [ours]

    def cells(self, ours: str, published: str | None, best: bool = False) -> list[str]:
        if not self.wide and published is not None:
            ours = f"{ours} ({published})"
        shown = Bold(ours) if best else ours
        return [shown, published or "-"] if self.wide else [shown]

    def title(self, title: str) -> str:
        return title if self.wide else f"{title} (published in brackets)"


def to_markdown(rows: Sequence[Row]) -> str:
    """Return all sections in Markdown."""
    sections = (section.markdown(titled=True) for section in _sections(rows, _Layout(wide=True)))
    return "\n".join([_NOTE, "", *sections])


def write_markdown(rows: Sequence[Row], path: Path) -> None:
    """Write all sections to a Markdown file."""
    write_text(path, to_markdown(rows))


def terminal_tables(rows: Sequence[Row]) -> list[Table]:
    """Return all sections for a terminal of 80 columns: without settings and published standard deviations."""
    return list(_sections(rows, _Layout(wide=False)))


def _sections(rows: Sequence[Row], layout: _Layout) -> Iterator[Table]:
    for dataset, group in by_dataset(rows):
        yield _results(dataset, group, layout)
    yield from _shrunk_section(rows)
    if ranks := average_ranks(rows):
        yield _rank_section(ranks, list(complete_groups(rows)), layout)
    if floor := floor_check(rows):
        yield _floor_section(floor, layout)


def _results(dataset: str, rows: Sequence[Row], layout: _Layout) -> Table:
    headings = ["method", "setting", "seeds"] if layout.wide else ["method"]
    for measure in MEASURES:
        headings += layout.headings(f"{measure.label} (%)" if layout.wide else measure.label)
    lines = []
    for row in rows:
        line = [METHODS[row.method].label]
        if layout.wide:
            line += [_setting(row), str(row.seeds)]
        published = PUBLISHED.get((dataset, row.method))
        for measure in MEASURES:
            ours = _mean_and_std(row, measure)
            theirs = None
            if published is not None:
                theirs = _mean_and_std(published, measure) if layout.wide else _percent(mean_of(published, measure))
            # A terminal of 80 columns has no space to spare.
            line += layout.cells(ours if layout.wide else ours.replace(" ", ""), theirs, _is_best(row, rows, measure))
        lines.append(line)
    if layout.wide:
        return Table(headings, lines, _label(dataset))
    seeds = " or ".join(str(count) for count in sorted({row.seeds for row in rows}))
    return Table(headings, lines, layout.title(f"{_label(dataset)}, % over {seeds} seeds"))


def _is_best(row: Row, rows: Sequence[Row], measure: Measure) -> bool:
    best = max if measure.more_is_better else min
    ranked = [other for other in rows if other.method in RANKED]
    return row in ranked and mean_of(row, measure) == best(mean_of(other, measure) for other in ranked)


def _shrunk_section(rows: Sequence[Row]) -> Iterator[Table]:
    """Structured sparsity: what remains when dead units are removed."""
    complete = complete_groups(rows)
    if complete:
        headings = ["data set", "method", "weights (%)", "MACs (%)", "file (kB)"]
        lines = [
            [
                _label(dataset),
                METHODS[row.method].label,
                _percent(row.small_params),
                _percent(row.small_flops),
                f"{row.small_bytes / 1000:.1f}",
            ]
            for dataset, group in complete.items()
            for row in group.values()
        ]
        note = (
            "Means over the seeds. Weights and MACs of the network without its dead units, remaining zeros included, "
            "relative to the full network: the cost in a library without sparse layers. The file stores no zeros."
        )
        yield Table(headings, lines, "Left by `shrink`", note, align="ll")


def _rank_section(ranks: Mapping[str, Mapping[str, float]], datasets: Sequence[str], layout: _Layout) -> Table:
    headings = ["method"]
    for measure in MEASURES:
        headings += layout.headings(measure.label)
    lines = []
    for method in RANKED:
        line = [METHODS[method].label]
        for measure in MEASURES:
            ours = ranks[method][measure.key]
            best = ours == min(other[measure.key] for other in ranks.values())
            line += layout.cells(f"{ours:.2g}", f"{AVERAGE_RANKS[method][measure.key]:.2g}", best)
        lines.append(line)
    note = f"Ours over {', '.join(_label(dataset) for dataset in datasets)}; published over the paper's five data sets."
    return Table(headings, lines, layout.title("Average ranks, 1 is best"), note)


def _floor_section(floor: Floor, layout: _Layout) -> Table:
    headings = ["data set", *layout.headings("accuracy (%)", "best published")]
    headings += [*layout.headings("MACs kept (%)"), *layout.headings("weights kept (%)")]
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
        "Accuracy against the best of the paper's four methods; MACs and weights against its integrated Tl1. ✗ marks "
        f"figures worse than the published one. Ours / published, geometric mean over {_count(floor.lines)}: "
        f"MACs {floor.flops_ratio:.3f}, weights {floor.params_ratio:.3f}."
    )
    return Table(headings, lines, layout.title("Integrated Tl1 against the paper"), note)


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
    return f"{_percent(mean)} ± {percent(std, _digits(mean))}"


def _percent(fraction: float) -> str:
    return percent(fraction, _digits(fraction))


def _digits(fraction: float) -> int:
    """Return the decimals of a percentage: one more below 1 %."""
    return 2 if fraction >= 0.01 else 3
