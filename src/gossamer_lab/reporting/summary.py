"""The summary figure of a run and of the runs it is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from gossamer.errors import GossamerError
from gossamer.files import write_atomically
from gossamer_lab.training import EpochMetrics, RunDirectory, RunResult

__all__ = ["summary_figure"]


@dataclass(frozen=True)
class _Style:
    """How one run is drawn. Colours are told apart by the colour-blind, and dashes and hatches without any colour."""

    colour: str
    line: str
    marker: str
    hatch: str


_STYLES = (
    _Style("#0b4f8a", "-", "o", ""),
    _Style("#777777", "--", "s", "///"),
    _Style("#f2a541", "-.", "^", "..."),
)


@dataclass(frozen=True)
class _Drawn:
    """A run, read from its files."""

    label: str
    result: RunResult
    metrics: list[EpochMetrics]
    style: _Style


def summary_figure(runs: Sequence[RunDirectory]) -> Path:
    """Draw up to three finished runs beside each other, from their files alone, into the folder of the first.

    Above: accuracy and kept weights over the training. Below: kept weights and units of each layer at its end.
    """
    if not 1 <= len(runs) <= len(_STYLES):
        raise GossamerError(f"`summary_figure` draws 1 to {len(_STYLES)} runs; received {len(runs)}.")
    drawn = [_read(run, style) for run, style in zip(runs, _STYLES, strict=False)]
    with rc_context({"font.size": 9.5, "axes.titlesize": 10.5, "axes.titleweight": "bold", "hatch.linewidth": 0.6}):
        figure = Figure(figsize=(10.5, 7.6), dpi=150, layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1))
        FigureCanvasAgg(figure)
        (accuracy, kept), (weights, units) = figure.subplots(2, 2)
        _draw_accuracy(accuracy, drawn)
        _draw_kept(kept, drawn)
        _draw_layers(weights, drawn, "nonzeros", "weights")
        _draw_layers(units, drawn, "units_alive", "units")
        _add_headings(figure, accuracy, drawn)
        content = BytesIO()
        figure.savefig(content, format="png")
    write_atomically(runs[0].figure, content.getvalue())
    return runs[0].figure


def _read(run: RunDirectory, style: _Style) -> _Drawn:
    result = run.read_result()
    name = "dense" if result.regularizer == "none" else result.regularizer
    label = f"{name}, strength {result.strength:g}" if result.strength else name
    return _Drawn(label, result, run.read_metrics(), style)


def _add_headings(figure: Figure, lines: Axes, drawn: list[_Drawn]) -> None:
    first = drawn[0].result
    figure.suptitle(
        f"{first.dataset}, seed {first.seed}: {100 * first.accuracy:.1f} % of the test images right "
        f"with {100 * first.params_kept:.1f} % of the weights",
        fontsize=12.5,
    )
    figure.legend(*lines.get_legend_handles_labels(), loc="outside lower center", ncols=len(drawn) + 1, frameon=False)


def _draw_accuracy(axes: Axes, drawn: list[_Drawn]) -> None:
    _draw_lines(axes, drawn, "test_accuracy")
    # The first epochs would press all that follows into one line at the top.
    late = [line.test_accuracy for run in drawn for line in run.metrics[len(run.metrics) // 4 :]]
    lowest = 100 * min(late)
    axes.set_ylim(lowest - 0.1 * (101 - lowest), min(100.4, 100 * max(late) + 0.1 * (101 - lowest)))
    axes.set(title="Accuracy over the training", ylabel="test images right (%)")


def _draw_kept(axes: Axes, drawn: list[_Drawn]) -> None:
    _draw_lines(axes, drawn, "params_kept")
    # A network without any weights left would have no place on the scale: it is drawn at the lower edge.
    lowest = 100 * min(line.params_kept for run in drawn for line in run.metrics)
    axes.set_ylim(max(0.7 * lowest, 0.01), 130)
    axes.set_yscale("log", nonpositive="clip")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set(title="Kept weights over the training", ylabel="weights not zero (%), log scale")


def _draw_lines(axes: Axes, drawn: list[_Drawn], name: str) -> None:
    for number, run in enumerate(drawn):
        axes.plot(
            [line.epoch for line in run.metrics],
            [100 * getattr(line, name) for line in run.metrics],
            color=run.style.colour,
            linestyle=run.style.line,
            marker=run.style.marker,
            markevery=max(1, len(run.metrics) // 10),
            markersize=4,
            linewidth=1.8 if number == 0 else 1.1,
            label=run.label,
            zorder=3 if number == 0 else 2,
        )
    held = [line.epoch for line in drawn[0].metrics if line.phase == "hold"]
    if held:
        axes.axvspan(held[0] - 0.5, held[-1] + 0.5, color="#ececec", zorder=0, label="penalty off")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    axes.set_xlabel("epoch")
    axes.set_xlim(left=0.5)
    _tidy(axes)


def _draw_layers(axes: Axes, drawn: list[_Drawn], left: str, of: str) -> None:
    """Draw one group of bars for each layer: what is left of it in percent, and as a number on top of the bar."""
    width = 0.8 / len(drawn)
    for number, run in enumerate(drawn):
        layers: list[dict[str, Any]] = run.result.measurement["layers"]
        places = [place + (number - (len(drawn) - 1) / 2) * width for place in range(len(layers))]
        bars = axes.bar(
            places,
            [100 * layer[left] / layer[of] for layer in layers],
            width=0.92 * width,
            color=run.style.colour,
            edgecolor="white" if run.style.hatch else run.style.colour,
            hatch=run.style.hatch,
        )
        axes.bar_label(bars, [f"{layer[left]:,}" for layer in layers], fontsize=8, padding=1.5)
    layers = drawn[0].result.measurement["layers"]
    names = [layer["name"].removesuffix(".weight") for layer in layers]
    axes.set_xticks(
        range(len(layers)), [f"{name}\n({layer[of]:,} {of})" for name, layer in zip(names, layers, strict=True)]
    )
    axes.set_ylim(0, 112)
    axes.set_yticks(range(0, 101, 20))
    axes.set(title=f"Kept {of} per layer", ylabel=f"{of} {'not zero' if of == 'weights' else 'alive'} (%)")
    axes.set_xlabel("layer, in order of execution")
    _tidy(axes)


def _tidy(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#d9d9d9", linewidth=0.6)
    axes.set_axisbelow(True)
