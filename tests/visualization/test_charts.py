from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from gossamer.visualization import Epoch, Page, Run
from gossamer.visualization.charts import Chart, kept_axis
from gossamer.visualization.network_charts import histogram_chart, layer_chart, variant_charts
from gossamer.visualization.sections import sections
from gossamer.visualization.tradeoff import pareto_front, tradeoff_chart
from gossamer.visualization.training_charts import training_charts

from .conftest import HOSTILE


def charts(page: Page) -> list[Chart]:
    return [chart for section in sections(page) for chart in section.charts]


def test_every_figure_is_valid_plotly(page: Page) -> None:
    graph_objects = pytest.importorskip("plotly.graph_objects")
    found = charts(page)
    assert [chart.name for chart in found] == [
        "accuracy", "size", "tradeoff", "file-size", "layers-kept", "histogram",
    ]  # fmt: skip
    for chart in found:
        for figure in chart.figures.values():
            graph_objects.Figure(figure)  # raises for a property that Plotly does not know
            json.dumps(figure, allow_nan=False)


def test_the_themes_are_valid_plotly() -> None:
    from gossamer.visualization.themes import DARK, LIGHT

    graph_objects = pytest.importorskip("plotly.graph_objects")
    for theme in (LIGHT, DARK):
        graph_objects.layout.Template(theme.template)


def test_no_figure_has_a_colour_that_suits_one_theme_only(page: Page) -> None:
    from gossamer.visualization.themes import DARK, LIGHT

    text = json.dumps([chart.figures for chart in charts(page)])
    assert not [colour for theme in (LIGHT, DARK) for colour in theme.series if colour in text]


def test_curves_are_the_history(page: Page) -> None:
    accuracy, size = training_charts(page)
    for chart, name in ((accuracy, "accuracy"), (size, "params_kept")):
        (figure,) = chart.figures.values()
        for trace, run in zip(figure["data"], page.runs, strict=True):
            assert trace["name"] == run.label
            assert trace["x"] == [epoch.epoch for epoch in run.history]
            assert trace["y"] == [100 * getattr(epoch, name) for epoch in run.history]
        (held,) = figure["layout"]["shapes"]
        assert (held["x0"], held["x1"]) == (4.5, 6.5)
        dashes = [trace["line"]["dash"] for trace in figure["data"]]
        assert len(set(dashes)) == len(dashes)


def test_what_was_not_recorded_is_not_drawn() -> None:
    assert training_charts(Page("t", runs=(Run("a", 0.9, 0.1),))) == []
    (only,) = training_charts(Page("t", runs=(Run("a", history=(Epoch(1, params_kept=0.5), Epoch(2))),)))
    assert only.name == "size"
    assert only.figures[""]["data"][0]["y"] == [50.0, None]
    assert tradeoff_chart(Page("t", runs=(Run("a", 0.9, 0.1), Run("b", None, 0.2)))) is None


@pytest.mark.parametrize("count", [2, 6, 7, 30])
def test_every_run_is_a_point_that_says_what_it_is(count: int) -> None:
    runs = tuple(Run(f"run {n}", 0.5 + n / 100, 0.01 * (n + 1), 0.02) for n in range(count))
    chart = tradeoff_chart(Page("t", runs=runs))
    assert chart is not None
    traces = [trace for trace in chart.figures[""]["data"] if trace["mode"] == "markers"]
    points = [point for trace in traces for point in zip(trace["x"], trace["y"], trace["customdata"], strict=True)]
    assert [hover.split("</b>")[0] for _, _, hover in points] == [f"<b>{run.label}" for run in runs]
    assert [(x, y) for x, y, _ in points] == [(100 * run.params_kept, 100 * run.accuracy) for run in runs]


def test_the_front_is_what_no_other_run_beats() -> None:
    values = [(0.3, 0.9), (0.1, 0.8), (0.2, 0.8), (0.2, 0.85), (0.4, 0.9), (0.5, 0.95), (0.1, 0.7)]
    runs = [Run(str(n), accuracy, kept) for n, (kept, accuracy) in enumerate(values)]
    beaten = {
        run.label
        for run in runs
        for other in runs
        if other.params_kept <= run.params_kept
        and other.accuracy >= run.accuracy
        and (other.params_kept, other.accuracy) != (run.params_kept, run.accuracy)
    }
    assert {run.label for run in pareto_front(runs)} == {run.label for run in runs} - beaten


def test_kept_weights_have_a_log_axis_unless_one_is_zero() -> None:
    assert kept_axis([0.02, 1.0])["tickvals"] == pytest.approx([1, 2, 5, 10, 20, 50, 100, 200, 500])
    assert kept_axis([1e-6, 1.0])["ticktext"] == ["0.0001%", "0.001%", "0.01%", "0.1%", "1%", "10%", "100%"]
    assert "type" not in kept_axis([0.0, 1.0])
    assert "type" not in kept_axis([None])


def test_bars_are_parts_of_the_dense_layer(page: Page) -> None:
    network = page.network
    assert network is not None
    assert network.shrunk is not None
    weights, units, macs = layer_chart(network).figures[""]["data"]
    for index, (layer, shrunk) in enumerate(zip(network.layers, network.shrunk.layers, strict=True)):
        assert weights["x"][index] == pytest.approx(100 * layer.trained.nonzeros / layer.dense.weights)
        assert units["x"][index] == pytest.approx(100 * layer.trained.units_alive / layer.dense.units)
        assert macs["x"][index] == pytest.approx(100 * shrunk.macs / layer.dense.macs)
    unshrunk = replace(network, shrunk=None)
    assert [trace["name"] for trace in layer_chart(unshrunk).figures[""]["data"]] == [weights["name"], units["name"]]


def test_the_zeros_of_the_histogram_stand_apart(page: Page) -> None:
    network = page.network
    assert network is not None
    figures = histogram_chart(network).figures
    assert list(figures) == ["All layers", "conv", "hidden", "output"]
    for figure, histogram in zip(
        figures.values(), [network.histogram, *(layer.histogram for layer in network.layers)], strict=True
    ):
        spike, others = figure["data"]
        assert spike["y"] == [histogram.zeros, sum(histogram.counts)]
        assert others["y"] == list(histogram.counts)
        assert others["xaxis"] == "x2"


def test_forms_without_a_file_are_compared_by_latency_alone(page: Page) -> None:
    network = page.network
    assert network is not None
    forms = [replace(form, file_bytes=None, seconds={"1 input": 0.001}) for form in network.variants]
    (chart,) = variant_charts(forms)
    assert chart.title == "Latency, 1 input"
    assert chart.figures[""]["data"][0]["text"] == ["1.00 ms", "1.00 ms"]


def test_a_form_without_a_file_leaves_the_others_in_the_chart(page: Page) -> None:
    network = page.network
    assert network is not None
    native = replace(network.variants[0], name="native", file_bytes=None, seconds={})
    size, *_ = variant_charts([*network.variants, native])
    assert size.figures[""]["data"][0]["y"] == ["dense", "shrunk"]


def test_labels_of_charts_cannot_be_markup(page: Page) -> None:
    network = page.network
    assert network is not None
    hostile = replace(
        page,
        score=HOSTILE,
        runs=tuple(replace(run, label=HOSTILE) for run in page.runs),
        network=replace(network, layers=tuple(replace(layer, name=HOSTILE) for layer in network.layers)),
    )
    for chart in charts(hostile):
        text = json.dumps(list(chart.figures.values()))
        assert not [tag for tag in re.findall(r"<(/?\w+)", text) if tag not in ("b", "/b", "br", "extra", "/extra")]
