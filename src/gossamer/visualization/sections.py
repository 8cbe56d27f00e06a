"""The sections of a page, each as a heading and what stands under it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gossamer.measurement import LayerMeasurement
from gossamer.visualization.charts import Chart
from gossamer.visualization.data import Network, Page, UnitRow, Variant
from gossamer.visualization.formatting import count, file_size, measured_seconds, percent
from gossamer.visualization.markup import Column, Html, Table, render, tag
from gossamer.visualization.network_charts import histogram_chart, layer_chart, variant_charts
from gossamer.visualization.pictures import filter_figure, pattern_figures
from gossamer.visualization.study_summary import study_figures, study_sentences
from gossamer.visualization.summary import alerts, key_figures, sentences
from gossamer.visualization.tradeoff import study_chart, study_table, tradeoff_chart, tradeoff_table
from gossamer.visualization.training_charts import training_charts

__all__ = ["Section", "sections"]

_TIMES = "\N{NO-BREAK SPACE}×\N{NO-BREAK SPACE}"
_MOST_PLACES = 4


@dataclass(frozen=True)
class Section:
    """A part of the page: `name` is its address, `charts` are those that its content refers to."""

    name: str
    title: str
    content: Html
    charts: Sequence[Chart] = ()

    def html(self) -> Html:
        """The section with its heading."""
        heading = tag("h2", self.title, id=f"{self.name}-heading")
        return tag("section", heading, self.content, id=self.name, aria_labelledby=f"{self.name}-heading")


def sections(page: Page) -> list[Section]:
    """All sections for which the page has data, from the summary to the commands."""
    network = page.network
    found = [_summary(page), *_study(page)] if page.study else [_summary(page), _training(page), _tradeoff(page)]
    if network is not None:
        parts: list[Callable[[Network], Section | None]] = [
            _variants, _layers, _histogram, _patterns, _filters, _plan,
        ]  # fmt: skip
        found += [make(network) for make in parts]
    found.append(_configuration(page))
    return [section for section in found if section is not None]


def _summary(page: Page) -> Section:
    figures = study_figures(page, page.study) if page.study else key_figures(page)
    tiles = [
        tag("div", tag("dt", one.name), tag("dd", one.value, class_="value"), tag("dd", one.note, class_="note"))
        for one in figures
    ]
    alarms = [tag("p", tag("strong", "Warning: "), text, class_="warning") for text in alerts(page)]
    said = study_sentences(page, page.study) if page.study else sentences(page)
    words = [tag("p", sentence) for sentence in said]
    shown = [tag("dl", *tiles, class_="tiles")] if tiles else []
    return Section("summary", "Summary", render([*shown, *alarms, tag("div", *words, class_="words")]))


def _training(page: Page) -> Section | None:
    charts = training_charts(page)
    if not charts:
        return None
    return Section("training", "Training", tag("div", *(chart.html() for chart in charts), class_="grid"), charts)


def _tradeoff(page: Page) -> Section | None:
    chart = tradeoff_chart(page)
    if chart is None:
        return None
    beside = tag("div", chart.html(), tradeoff_table(page).html(), class_="grid beside")
    return Section("trade-off", "Trade-off", beside, [chart])


def _study(page: Page) -> list[Section | None]:
    """The trade-off first, then all runs, and the training of a few of them."""
    assert page.study is not None
    chart = study_chart(page.study, page.score)
    drawn = None if chart is None else Section("trade-off", "Trade-off", chart.html(), [chart])
    table = study_table(page.study, page.score)
    return [drawn, Section("runs", f"All {page.study.name}s", table.html()), _training(page)]


def _variants(network: Network) -> Section:
    charts = variant_charts(network.variants)
    grid = tag("div", *(chart.html() for chart in charts), class_="grid small")
    return Section("forms", "Size and latency", render([grid, _variant_table(network.variants).html()]), charts)


def _variant_table(variants: Sequence[Variant]) -> Table:
    labels = list(variants[0].seconds)
    columns = [
        Column("network", number=False), Column("weights, zeros included"), Column("MACs"), Column("in memory"),
        Column("file"), *(Column(f"latency, {label}") for label in labels),
    ]  # fmt: skip
    rows = [
        [
            one.name, count(one.weights), count(one.macs), file_size(one.memory_bytes), file_size(one.file_bytes),
            *(measured_seconds(one.seconds.get(label)) for label in labels),
        ]
        for one in variants
    ]  # fmt: skip
    note = "Files are those of gossamer.save; that of the shrunk network stores no zeros where that is smaller."
    if labels:
        note += " Latency is the median over forward passes that take turns, on the machine that made this page."
    return Table("forms-table", "Forms of the network", columns, rows, note)


def _layers(network: Network) -> Section:
    chart = layer_chart(network)
    return Section("layers", "Layers", render([chart.html(), _layer_table(network).html()]), [chart])


def _layer_table(network: Network) -> Table:
    columns = [Column("layer", number=False), Column("shape")]
    for group in ("weights", "units", "MACs"):
        columns += [Column("dense", group), Column("alive" if group == "units" else "not zero", group)]
        columns += [Column("kept", group)] * (group == "weights") + [Column("after shrink", group)]
    rows = [_layer_row(layer.label, layer.shape, layer.dense, layer.trained, layer.shrunk) for layer in network.layers]
    shrunk = network.shrunk.total if network.shrunk is not None else None
    rows.append(_layer_row("total", (), network.dense.total, network.trained.total, shrunk))
    note = (
        "Not zero and alive: in the network as trained. After shrink: all weights and MACs of the smaller layers, with "
        "the zeros inside them. Biases are not counted."
    )
    return Table("layers-table", "Layers in order of execution", columns, rows, note, total=True)


def _layer_row(
    label: str,
    shape: tuple[int, ...],
    dense: LayerMeasurement,
    trained: LayerMeasurement,
    shrunk: LayerMeasurement | None,
) -> list[str]:
    kept = trained.nonzeros / dense.weights if dense.weights else 1.0
    return [
        label,
        _TIMES.join(map(str, shape)),
        count(dense.weights),
        count(trained.nonzeros),
        percent(kept),
        count(shrunk.weights if shrunk else None),
        count(dense.units),
        count(trained.units_alive),
        count(shrunk.units if shrunk else None),
        count(dense.macs),
        count(trained.macs_nonzero),
        count(shrunk.macs if shrunk else None),
    ]


def _histogram(network: Network) -> Section:
    chart = histogram_chart(network)
    return Section("weights", "Weights", chart.html(), [chart])


def _patterns(network: Network) -> Section:
    return Section("patterns", "Sparsity patterns", pattern_figures(network.layers))


def _filters(network: Network) -> Section | None:
    if network.filters is None:
        return None
    return Section("filters", "First-layer filters", filter_figure(network.filters))


def _plan(network: Network) -> Section | None:
    removal = network.removal
    if removal is None:
        return None
    if removal.before == removal.after:
        headline = f"Nothing to remove: all {count(removal.before)} parameters stay."
    else:
        share = percent(removal.after / removal.before)
        headline = f"{count(removal.before)} parameters, biases included, become {count(removal.after)} ({share})."
    explained = (
        "A unit leaves if no live unit reads it with a non-zero weight (unread), or if its value never changes and can "
        "be added to the biases of its readers (constant). What is not understood stays, with the reason."
    )
    columns = [
        Column("units", number=False), Column("before"), Column("after"), Column("unread"), Column("constant"),
        Column("stays because", number=False), Column("also indexes", number=False),
    ]  # fmt: skip
    table = Table("plan-table", "What leaves, what stays and why", columns, [_plan_row(row) for row in removal.rows])
    notes = [tag("p", tag("strong", "Note: "), note) for note in removal.notes]
    return Section("plan", "Shrink plan", render([tag("p", headline), tag("p", explained), *notes, table.html()]))


def _plan_row(row: UnitRow) -> list[str]:
    reasons = "; ".join(f"{reason} ({count(number)})" for reason, number in row.reasons)
    numbers = (row.before, row.after, row.unread, row.constant)
    first, *others = row.where
    places = ", ".join(others[:_MOST_PLACES])
    if len(others) > _MOST_PLACES:
        places += f" and {len(others) - _MOST_PLACES} more"
    return [first, *map(count, numbers), reasons or ("live units read them" if row.after else ""), places]


def _configuration(page: Page) -> Section | None:
    parts = []
    if page.commands:
        entries = [
            render([tag("dt", command.purpose), tag("dd", tag("pre", tag("code", command.line), tabindex=0))])
            for command in page.commands
        ]
        parts.append(tag("dl", *entries, class_="commands"))
    if page.configuration:
        pairs = [tag("div", tag("dt", name), tag("dd", value)) for name, value in page.configuration]
        parts.append(tag("dl", *pairs, class_="settings card"))
    return Section("configuration", "Configuration", render(parts)) if parts else None
