from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_rgb

from gossamer.errors import GossamerError
from gossamer_lab.paper.tradeoff import TradeoffPoint, frontier, tradeoff_figure
from gossamer_lab.reporting import style

METHODS = ("l2", "l1", "sgl", "cges", "itl")
grid = st.integers(0, 5).map(lambda number: number / 5)


def points(dataset: str) -> list[TradeoffPoint]:
    """Five strengths for each method; the last one collapses, but for l2."""
    made = []
    for method in METHODS:
        for number in range(5):
            kept = 1.0 if method == "l2" else 0.3**number
            accuracy = 0.99 - 0.002 * number if method == "l2" or number < 4 else 0.1
            made.append(TradeoffPoint(dataset, method, accuracy, kept, kept / 2 if kept < 1 else 1.0))
    return made


@given(st.lists(st.tuples(grid, grid), max_size=12))
def test_frontier_is_what_brute_force_leaves(pairs: list[tuple[float, float]]) -> None:
    made = [TradeoffPoint("mnist", "itl", accuracy, kept, 0.0) for accuracy, kept in pairs]
    left = frontier(made, "flops_kept")
    unbeaten = {
        (kept, accuracy)
        for accuracy, kept in pairs
        if not any(o >= accuracy and k <= kept and (o, k) != (accuracy, kept) for o, k in pairs)
    }
    assert [(point.flops_kept, point.accuracy) for point in left] == sorted(unbeaten)


def test_four_panels_with_units_and_a_legend(tmp_path: Path) -> None:
    path = tmp_path / "new" / "trade.png"
    figure = tradeoff_figure(points("pendigits") + points("mnist"), path)
    assert path.read_bytes().startswith(b"\x89PNG\r\n")
    assert path.stat().st_size > 20_000
    assert [axes.get_title() for axes in figure.axes] == ["MNIST", "MNIST", "PENDIGITS", "PENDIGITS"]
    labels = ["MACs kept (%), log scale", "weights kept (%), log scale"]
    assert [axes.get_xlabel() for axes in figure.axes] == labels * 2
    assert {axes.get_ylabel() for axes in figure.axes} == {"test accuracy (%)"}
    assert {axes.get_xscale() for axes in figure.axes} == {"log"}
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["l2", "l1", "SGL", "CGES", "ITL"]


def test_methods_differ_without_colour(tmp_path: Path) -> None:
    figure = tradeoff_figure(points("mnist"), tmp_path / "trade.png")
    lines = [line for line in figure.axes[0].get_lines() if not str(line.get_label()).startswith("_")]
    assert len(lines) == 5
    assert len({line.get_marker() for line in lines}) == 5
    assert len({style.METHODS[method].line for method in METHODS}) == 5
    lightness = [
        0.299 * red + 0.587 * green + 0.114 * blue for red, green, blue in (to_rgb(line.get_color()) for line in lines)
    ]
    assert lightness == sorted(lightness, reverse=True)


def test_all_points_are_drawn_in_percent(tmp_path: Path) -> None:
    made = points("mnist")
    flops, params = tradeoff_figure(made, tmp_path / "trade.png").axes
    for axes, key in ((flops, "flops_kept"), (params, "params_kept")):
        drawn = [pair for line in axes.get_lines() for pair in zip(line.get_xdata(), line.get_ydata(), strict=True)]
        assert sorted(drawn) == sorted((100 * getattr(point, key), 100 * point.accuracy) for point in made)


def test_collapsed_runs_do_not_stretch_the_axes_and_are_counted(tmp_path: Path) -> None:
    for axes in tradeoff_figure(points("mnist"), tmp_path / "trade.png").axes:
        low, high = axes.get_ylim()
        assert 97 < low < 98.2
        assert 99 < high < 100
        assert [text.get_text() for text in axes.texts] == ["not drawn: 1 l1, 1 SGL, 1 CGES, 1 ITL"]


def test_networks_without_weights_and_without_errors_are_drawn(tmp_path: Path) -> None:
    made = [TradeoffPoint("mnist", "itl", 1.0, 0.5, 0.5), TradeoffPoint("mnist", "itl", 0.1, 0.0, 0.0)]
    figure = tradeoff_figure(made, tmp_path / "trade.png")
    assert figure.axes[0].get_xlim()[0] == pytest.approx(40)


def test_nothing_to_draw_and_unknown_methods_are_refused(tmp_path: Path) -> None:
    with pytest.raises(GossamerError, match="mnist or pendigits"):
        tradeoff_figure(points("sdd"), tmp_path / "trade.png")
    with pytest.raises(GossamerError, match="received 'dense'"):
        tradeoff_figure([TradeoffPoint("mnist", "dense", 0.99, 1.0, 1.0)], tmp_path / "trade.png")
    assert list(tmp_path.iterdir()) == []
