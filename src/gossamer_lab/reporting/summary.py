"""The summary figure of a run and its baselines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from gossamer.errors import GossamerError
from gossamer_lab.reporting.style import RUNS, Style, log_percent, new_figure, save, tidy
from gossamer_lab.training import EpochMetrics, RunDirectory, RunResult

__all__ = ["summary_figure"]


@dataclass(frozen=True)
class _Series:
    """A run as read from its files."""

    label: str
    result: RunResult
    metrics: list[EpochMetrics]
    style: Style


def summary_figure(runs: Sequence[RunDirectory]) -> Path:
    """Draw up to three finished runs from their files, into the directory of the first.

    Top: test accuracy and non-zero weights over the epochs. Bottom: non-zero weights and live units per layer.
    """
    if not 1 <= len(runs) <= len(RUNS):
        raise GossamerError(f"`summary_figure` draws 1 to {len(RUNS)} runs; received {len(runs)}.")
    series = [_read(run, style) for run, style in zip(runs, RUNS, strict=False)]
    with new_figure(10.5, 7.6) as figure:
        (accuracy, kept), (weights, units) = figure.subplots(2, 2)
        _draw_accuracy(accuracy, series)
        _draw_kept(kept, series)
        _draw_layers(weights, series, "nonzeros", "weights")
        _draw_layers(units, series, "units_alive", "units")
        _add_headings(figure, accuracy, series)
        return save(figure, runs[0].figure)


def _read(run: RunDirectory, style: Style) -> _Series:
    result = run.read_result()
    name = "dense" if result.regularizer == "none" else result.regularizer
    label = f"{name}, strength {result.strength:.3g}" if result.strength else name
    return _Series(label, result, run.read_metrics(), style)


def _add_headings(figure: Figure, lines: Axes, series: list[_Series]) -> None:
    first = series[0].result
    figure.suptitle(
        f"{first.dataset}, seed {first.seed}: test accuracy {100 * first.accuracy:.1f} % "
        f"with {100 * first.params_kept:.1f} % of the weights",
        fontsize=12.5,
    )
    figure.legend(*lines.get_legend_handles_labels(), loc="outside lower center", ncols=len(series) + 1, frameon=False)


def _draw_accuracy(axes: Axes, series: list[_Series]) -> None:
    _draw_lines(axes, series, "test_accuracy")
    # The range of the later epochs: with the first ones, all lines would merge at the top.
    late = [line.test_accuracy for run in series for line in run.metrics[len(run.metrics) // 4 :]]
    lowest = 100 * min(late)
    axes.set_ylim(lowest - 0.1 * (101 - lowest), min(100.4, 100 * max(late) + 0.1 * (101 - lowest)))
    axes.set(title="Test accuracy", ylabel="test accuracy (%)")


def _draw_kept(axes: Axes, series: list[_Series]) -> None:
    _draw_lines(axes, series, "params_kept")
    # A network without any weights has no place on a log scale; it is drawn at the lower edge.
    lowest = 100 * min(line.params_kept for run in series for line in run.metrics)
    axes.set_ylim(max(0.7 * lowest, 0.01), 130)
    axes.set_yscale("log", nonpositive="clip")
    log_percent(axes.yaxis)
    axes.set(title="Non-zero weights", ylabel="non-zero weights (%), log scale")


def _draw_lines(axes: Axes, series: list[_Series], name: str) -> None:
    for number, run in enumerate(series):
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
    held = [line.epoch for line in series[0].metrics if line.phase == "hold"]
    if held:
        axes.axvspan(held[0] - 0.5, held[-1] + 0.5, color="#ececec", zorder=0, label="penalty off")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    axes.set_xlabel("epoch")
    axes.set_xlim(left=0.5)
    tidy(axes)


def _draw_layers(axes: Axes, series: list[_Series], kept: str, of: str) -> None:
    """Draw a group of bars per layer: the kept percentage, labelled with the kept number."""
    width = 0.8 / len(series)
    for number, run in enumerate(series):
        layers: list[dict[str, Any]] = run.result.measurement["layers"]
        positions = [layer + (number - (len(series) - 1) / 2) * width for layer in range(len(layers))]
        bars = axes.bar(
            positions,
            [100 * layer[kept] / layer[of] for layer in layers],
            width=0.92 * width,
            color=run.style.colour,
            edgecolor="white" if run.style.hatch else run.style.colour,
            hatch=run.style.hatch,
        )
        axes.bar_label(bars, [f"{layer[kept]:,}" for layer in layers], fontsize=8, padding=1.5)
    layers = series[0].result.measurement["layers"]
    names = [layer["name"].removesuffix(".weight") for layer in layers]
    axes.set_xticks(
        range(len(layers)), [f"{name}\n({layer[of]:,} {of})" for name, layer in zip(names, layers, strict=True)]
    )
    axes.set_ylim(0, 112)
    axes.set_yticks(range(0, 101, 20))
    title = "Non-zero weights" if of == "weights" else "Live units"
    axes.set(title=f"{title} per layer", ylabel=f"{title.lower()} (%)")
    axes.set_xlabel("layer, in order of execution")
    tidy(axes)
