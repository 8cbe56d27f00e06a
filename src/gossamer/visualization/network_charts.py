"""Charts of one network: what is left of each layer, the weights by value, bytes and latency of its forms."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from gossamer.visualization.charts import Chart, Figure, literal, percent_axis
from gossamer.visualization.data import Histogram, Layer, Network, Variant
from gossamer.visualization.formatting import count, file_size, measured_seconds, percent, shorten
from gossamer.visualization.markup import Column, Table
from gossamer.visualization.themes import GREY, NONZERO

__all__ = ["histogram_chart", "layer_chart", "variant_charts"]

_LONGEST_NAME = 26
_FEW_LAYERS = 8
_MOST_HISTOGRAMS = 100


def layer_chart(network: Network) -> Chart:
    """Weights, units and MACs that are left in each layer, in percent of the dense layer."""
    layers = network.layers
    kept = {
        "weights that are not zero": [(layer.trained.nonzeros, layer.dense.weights) for layer in layers],
        "units alive": [(layer.trained.units_alive, layer.dense.units) for layer in layers],
    }
    if network.shrunk is not None:
        kept["MACs after shrink"] = [
            (after.macs, layer.dense.macs) for after, layer in zip(network.shrunk.layers, layers, strict=True)
        ]
    traces = [_bars(name, layers, parts) for name, parts in kept.items()]
    layout = {
        "barmode": "group",
        "bargap": 0.25,
        "xaxis": {**percent_axis("of the dense layer"), "range": [0, 101], "dtick": 25},
        "yaxis": {
            "tickvals": list(range(len(layers))),
            "ticktext": [literal(shorten(layer.label, _LONGEST_NAME)) for layer in layers],
            "autorange": "reversed",
            "showgrid": False,
        },
        "legend": {"traceorder": "normal"},
        "hovermode": "closest",
    }
    height = 110 + (58 if len(layers) <= _FEW_LAYERS else 40) * len(layers)
    words = "In percent of the dense layer, in order of execution; the numbers are in the table."
    return Chart("layers-kept", "What is left of each layer", words, height, {"": {"data": traces, "layout": layout}})


def histogram_chart(network: Network) -> Chart:
    """Zeros as one bar of its own, the other weights by value; for all layers together and for each."""
    histograms = {"All layers": network.histogram}
    if len(network.layers) > 1:
        # Two layers of one name cannot be: names are those of parameters.
        histograms |= {layer.label: layer.histogram for layer in network.layers[:_MOST_HISTOGRAMS]}
    whole = network.histogram
    total = whole.zeros + whole.nonfinite + sum(whole.counts)
    words = (
        f"{count(whole.zeros)} of {count(total)} weights ({percent(whole.zeros / max(total, 1))}) are exactly zero and "
        "have a bar and a scale of their own, on the left; on the right are the others."
    )
    columns = [Column("layer", number=False), Column("exactly zero"), Column("not zero"), Column("range")]
    rows = [[name, *_histogram_row(one)] for name, one in histograms.items()]
    table = Table("histogram-table", "Weights by value", columns, rows)
    figures = {name: _histogram_figure(one) for name, one in histograms.items()}
    return Chart("histogram", "Weights by value", words, 340, figures, [table])


def variant_charts(variants: Sequence[Variant]) -> list[Chart]:
    """Size of the file and latency of each form of the network, beside each other."""
    charts = []
    bars = [(one.name, float(one.file_bytes), file_size(one.file_bytes)) for one in variants if one.file_bytes]
    if bars:
        words = "; ".join(f"{name} {text}" for name, _, text in bars) + "."
        charts.append(_variant_chart("file-size", "Size of the file", words, bars))
    for number, label in enumerate(variants[0].seconds if variants else ()):
        timed = [(one.name, one.seconds[label], measured_seconds(one.seconds[label])) for one in variants]
        words = "; ".join(f"{name} {text}" for name, _, text in timed) + "."
        charts.append(_variant_chart(f"latency-{number}", f"Latency, {label}", words, timed))
    return charts


def _bars(name: str, layers: Sequence[Layer], parts: Sequence[tuple[int, int]]) -> dict[str, Any]:
    details = [
        [literal(layer.label), count(left), count(whole), percent(left / whole if whole else 1.0)]
        for layer, (left, whole) in zip(layers, parts, strict=True)
    ]
    template = "<b>%{customdata[0]}</b><br>%{customdata[1]} of %{customdata[2]} (%{customdata[3]})"
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": list(range(len(layers))),
        "x": [100 * left / whole if whole else 100.0 for left, whole in parts],
        "customdata": details,
        "hovertemplate": f"{template}<br>{name}<extra></extra>",
    }


def _histogram_figure(histogram: Histogram) -> Figure:
    edges, counts = histogram.edges, histogram.counts
    centres = [(low + high) / 2 for low, high in pairwise(edges)]
    width = edges[1] - edges[0]
    nonzero, largest = sum(counts), max(histogram.zeros, sum(counts), 1)
    ranges = [[f"{low:.3g}", f"{high:.3g}"] for low, high in pairwise(edges)]
    traces = [
        {
            "type": "bar", "x": ["zero", "other"], "y": [histogram.zeros, nonzero],
            "text": [count(histogram.zeros), count(nonzero)], "textposition": "outside", "textangle": 0,
            "constraintext": "none", "cliponaxis": False, "marker": {"color": [GREY, NONZERO]},
            "hovertemplate": "%{x}: %{y:,} weights<extra></extra>",
        },
        {
            "type": "bar", "x": centres, "y": list(counts), "width": width, "xaxis": "x2", "yaxis": "y2",
            "customdata": ranges, "marker": {"color": NONZERO, "line": {"width": 0}},
            "hovertemplate": "%{y:,} weights between %{customdata[0]} and %{customdata[1]}<extra></extra>",
        },
    ]  # fmt: skip
    layout = {
        "xaxis": {"domain": [0, 0.28], "showgrid": False, "tickangle": 0},
        "yaxis": {"title": {"text": "weights"}, "range": [0, 1.12 * largest], "nticks": 5},
        "xaxis2": {"domain": [0.4, 1], "title": {"text": "value, if not zero"}},
        "yaxis2": {"anchor": "x2", "nticks": 5, "range": [0, 1.06 * max(*counts, 1)]},
        "bargap": 0.3,
        "showlegend": False,
    }
    return {"data": traces, "layout": layout}


def _histogram_row(histogram: Histogram) -> list[str]:
    filled = [index for index, number in enumerate(histogram.counts) if number]
    low, high = (histogram.edges[filled[0]], histogram.edges[filled[-1] + 1]) if filled else (0.0, 0.0)
    return [count(histogram.zeros), count(sum(histogram.counts)), f"{low:.3g} to {high:.3g}" if filled else "–"]


def _variant_chart(name: str, title: str, words: str, bars: Sequence[tuple[str, float, str]]) -> Chart:
    trace = {
        "type": "bar",
        "orientation": "h",
        "y": [bar[0] for bar in bars],
        "x": [bar[1] for bar in bars],
        "text": [bar[2] for bar in bars],
        "textposition": "auto",
        "hovertemplate": "%{y}: %{text}<extra></extra>",
    }
    layout = {
        "xaxis": {"visible": False, "rangemode": "tozero"},
        "yaxis": {"autorange": "reversed", "showgrid": False},
        "bargap": 0.35,
        "showlegend": False,
    }
    return Chart(name, title, words, 60 + 44 * len(bars), {"": {"data": [trace], "layout": layout}})
