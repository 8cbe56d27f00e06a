"""What the shape a of transformed l1 does to the network on DIGITS: over the epochs, and in the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from gossamer.errors import GossamerError
from gossamer_lab.paper.outcomes import Outcome, plus_minus
from gossamer_lab.paper.style import DATASET_LABELS, add_caption, new_figure, save, tidy
from gossamer_lab.training import EpochMetrics

__all__ = ["effect_of_a_figure", "effect_of_a_markdown"]


@dataclass(frozen=True)
class _Line:
    """How a value of a is drawn: dashes and markers tell the lines apart without any colour."""

    colour: str
    dashes: str | tuple[float, tuple[float, ...]]
    marker: str


# From small a to large; neighbours differ in lightness.
_LINES = (
    _Line("#000000", "-", "o"),
    _Line("#e69f00", "--", "s"),
    _Line("#0b3d6e", "-.", "^"),
    _Line("#56b4e9", (0, (5, 1.5, 1, 1.5, 1, 1.5)), "D"),
    _Line("#00664b", ":", "v"),
    _Line("#cc79a7", (0, (8, 2)), "P"),
)


def effect_of_a_figure(outcomes: Sequence[Outcome], path: Path) -> Path:
    """Draw accuracy, FLOP kept and parameters kept over the epochs, for each a the mean over its seeds.

    Args:
        outcomes: Their keys are the values of a, as text.
        path: The PNG file that is written.
    """
    groups = _by_a(outcomes)
    if len(groups) > len(_LINES):
        raise GossamerError(f"`effect_of_a_figure` draws up to {len(_LINES)} values of a; received {len(groups)}.")
    with new_figure(11.4, 4.6) as figure:
        accuracy, flops, params = figure.subplots(1, 3)
        _draw(accuracy, groups, lambda line: 100 * line.test_accuracy)
        _draw(flops, groups, lambda line: 100 * line.flops_kept)
        _draw(params, groups, lambda line: 100 * line.params_kept)
        _zoom_accuracy(accuracy, groups)
        accuracy.set(title="Accuracy", ylabel="test images right (%)")
        flops.set(title="FLOP kept", ylabel="multiply-adds kept (%), log scale")
        params.set(title="Parameters kept", ylabel="weights kept (%), log scale")
        for axes in (flops, params):
            _percent_by_decades(axes)
        dataset = outcomes[0].job.config.dataset
        figure.suptitle(
            f"Effect of a on {DATASET_LABELS.get(dataset, dataset)}",
            fontsize=12.5,
            x=0.012,
            ha="left",
        )
        figure.legend(
            *accuracy.get_legend_handles_labels(),
            loc="outside upper right",
            ncols=len(groups),
            frameon=False,
            handlelength=4,
        )
        seeds = " to ".join(str(count) for count in sorted({len(group) for group in groups.values()}))
        strengths = ", ".join(_strengths(group) for group in groups.values())
        add_caption(
            figure,
            f"Means over seeds, {seeds} for each a. Strengths, from the smallest a on: {strengths}. From the vertical "
            "line on, the penalty is off and zeros are held. The first epochs lie below the edge of the left panel.",
        )
        return save(figure, path)


def effect_of_a_markdown(outcomes: Sequence[Outcome]) -> str:
    """Write a table of how the trainings ended: for each a the mean ± standard deviation over its seeds."""
    lines = [
        "| a | strength | accuracy (%) | FLOP kept (%) | parameters kept (%) | seeds |",
        "| ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for a, group in _by_a(outcomes).items():
        results = [outcome.result for outcome in group]
        cells = [
            f"{a:g}",
            _strengths(group),
            plus_minus([100 * result.accuracy for result in results]),
            plus_minus([100 * result.flops_kept for result in results]),
            plus_minus([100 * result.params_kept for result in results]),
            str(len(results)),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _by_a(outcomes: Sequence[Outcome]) -> dict[float, list[Outcome]]:
    if not outcomes:
        raise GossamerError("There are no trainings with different a. Train some before they are shown.")
    groups: dict[float, list[Outcome]] = {}
    for outcome in outcomes:
        try:
            a = float(outcome.job.key)
        except ValueError:
            raise GossamerError(f"The keys must be values of a; received {outcome.job.key!r}.") from None
        groups.setdefault(a, []).append(outcome)
    return dict(sorted(groups.items()))


def _strengths(outcomes: Sequence[Outcome]) -> str:
    return " and ".join(f"{strength:g}" for strength in sorted({outcome.result.strength for outcome in outcomes}))


def _draw(axes: Axes, groups: dict[float, list[Outcome]], of: Callable[[EpochMetrics], float]) -> None:
    for number, ((a, group), line) in enumerate(zip(groups.items(), _LINES, strict=False)):
        # A phase may end early: the mean ends with the shortest of the trainings.
        rows = list(zip(*(outcome.history for outcome in group), strict=False))
        every = max(1, len(rows) // 8)
        axes.plot(
            [row[0].epoch for row in rows],
            [fmean(of(metrics) for metrics in row) for row in rows],
            color=line.colour,
            linestyle=line.dashes,
            marker=line.marker,
            # Markers of different lines at different epochs, so that they do not cover each other.
            markevery=(number * every // len(groups), every),
            markersize=4,
            linewidth=1.3,
            label=f"a = {a:g}",
        )
    for start in sorted({start for group in groups.values() for outcome in group for start in _hold_start(outcome)}):
        axes.axvline(start - 0.5, color="#8a8a8a", linewidth=1.2, zorder=1)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    axes.set_xlabel("epoch")
    tidy(axes)


def _hold_start(outcome: Outcome) -> list[int]:
    """The first epoch of the second phase, where there is one."""
    return [metrics.epoch for metrics in outcome.history if metrics.phase == "hold"][:1]


def _zoom_accuracy(axes: Axes, groups: dict[float, list[Outcome]]) -> None:
    """Leave out the first epochs, which would press all that follows into one line at the top."""
    late = [
        100 * metrics.test_accuracy
        for group in groups.values()
        for outcome in group
        for metrics in outcome.history[len(outcome.history) // 5 :]
    ]
    lowest, highest = min(late), max(late)
    margin = 0.06 * (highest - lowest) + 0.1
    axes.set_ylim(lowest - margin, min(100.4, highest + margin))


def _percent_by_decades(axes: Axes) -> None:
    axes.set_yscale("log", nonpositive="clip")
    axes.set_ylim(top=130)
    within_a_decade = axes.get_ylim()[0] > 10
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 4, 5, 7) if within_a_decade else (1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
