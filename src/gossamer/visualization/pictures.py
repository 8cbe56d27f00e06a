"""Pictures on the page: sparsity patterns and first-layer filters, as images with a description."""

from __future__ import annotations

from collections.abc import Sequence

from gossamer.visualization.data import Filter, Filters, Layer
from gossamer.visualization.formatting import count, percent
from gossamer.visualization.markup import Html, render, tag
from gossamer.visualization.png import data_uri, levels_png, rgba_png
from gossamer.visualization.themes import NONZERO

__all__ = ["filter_figure", "pattern_figures"]

# More patterns than this open on demand.
_SHOWN_AT_ONCE = 12

# Cells get denser from 1 to 15; the least dense ones must still be seen.
_RED, _GREEN, _BLUE = bytes.fromhex(NONZERO[1:])
_PALETTE = [(_RED, _GREEN, _BLUE, 0 if level == 0 else 60 + 13 * level) for level in range(16)]

# Height over width of a picture, whatever the shape of the weight.
_FLATTEST, _TALLEST = 0.22, 0.8


def pattern_figures(layers: Sequence[Layer]) -> Html:
    """One picture for each layer that has weights."""
    figures = [_pattern_figure(layer) for layer in layers if layer.pattern.levels]
    words = tag(
        "p",
        "Each row is an output unit, each column an ingoing weight. A pixel without colour holds only exact zeros; "
        "where a pixel covers several weights, a stronger colour means more of them that are not zero.",
    )
    first = tag("div", *figures[:_SHOWN_AT_ONCE], class_="patterns")
    rest = figures[_SHOWN_AT_ONCE:]
    if not rest:
        return render([words, first])
    more = tag("details", tag("summary", f"{len(rest)} more layers"), tag("div", *rest, class_="patterns"))
    return render([words, first, more])


def filter_figure(filters: Filters) -> Html:
    """The filters of the first layer side by side."""
    colours = (
        "Red, green and blue are the three input channels, and grey is zero."
        if filters.colour
        else "Blue is negative, orange positive, and a weight without colour is exactly zero."
    )
    words = (
        f"The first {count(len(filters.shown))} of {count(filters.units)} filters of "
        f"{filters.layer.removesuffix('.weight')}. With a non-zero weight: {count(filters.alive)}; the others have a "
        f"dashed frame. {colours}"
    )
    tiles = [_tile(one, filters) for one in filters.shown]
    wide = f"--tile: {max(44, min(112, 3 * filters.width))}px"
    grid = tag("div", *tiles, class_="filters", role="img", aria_label=words, style=wide)
    return tag("figure", tag("figcaption", tag("p", words)), grid, class_="card")


def _pattern_figure(layer: Layer) -> Html:
    pattern, counts = layer.pattern, layer.trained
    weights = pattern.rows * pattern.columns
    share = percent(counts.nonzeros / weights)
    size = f"{count(pattern.rows)} × {count(pattern.columns)}"
    covers = -(-pattern.rows // pattern.height), -(-pattern.columns // pattern.width)
    scale = "" if covers == (1, 1) else f"; a pixel covers up to {covers[0]} × {covers[1]} weights"
    image = levels_png(pattern.width, pattern.height, pattern.levels, _PALETTE)
    ratio = min(max(pattern.height / pattern.width, _FLATTEST), _TALLEST)
    picture = tag(
        "img", src=data_uri(image), width=pattern.width, height=pattern.height, class_="pattern",
        style=f"aspect-ratio: {1 / ratio:.3f}",
        alt=f"Sparsity pattern of {layer.label}: {count(counts.nonzeros)} of {count(weights)} weights are not zero.",
    )  # fmt: skip
    caption = tag("figcaption", tag("h3", layer.label), tag("p", f"{size}, {share} not zero{scale}"))
    return tag("figure", caption, picture, class_="card")


def _tile(one: Filter, filters: Filters) -> Html:
    title = f"unit {one.unit}: {count(one.nonzeros)} of {count(filters.weights_per_unit)} weights are not zero"
    return tag(
        "img", src=data_uri(rgba_png(filters.width, filters.height, one.rgba)), alt="", title=title,
        width=filters.width, height=filters.height, class_="filter" if one.nonzeros else "filter dead",
    )  # fmt: skip
