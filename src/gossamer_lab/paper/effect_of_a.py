"""The effect of the shape a of transformed l1 on DIGITS."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from gossamer.errors import GossamerError
from gossamer_lab.paper.experiments import Experiment, Request, write_text
from gossamer_lab.paper.methods import ITL
from gossamer_lab.paper.outcomes import Outcome
from gossamer_lab.paper.plan import Training
from gossamer_lab.paper.published import DATASET_LABELS
from gossamer_lab.paper.recipes import OURS
from gossamer_lab.paper.runner import OUTCOMES
from gossamer_lab.paper.searches import search_at
from gossamer_lab.reporting.style import SHAPES, add_caption, log_percent, new_figure, save, tidy
from gossamer_lab.reporting.tables import Table, mean_std
from gossamer_lab.training import EpochMetrics

__all__ = ["EXPERIMENT", "effect_of_a_figure", "effect_of_a_table"]

_VALUES = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)
_FILE = "effect-of-a/results.jsonl"


def _trainings(request: Request) -> list[Training]:
    recipe = replace(OURS, quick=request.quick)
    return [
        Training(_FILE, f"{a:g}", "digits", ITL, recipe, seed, searches=(search_at(a, recipe),))
        for a in _VALUES
        for seed in request.seeds
    ]


def effect_of_a_table(outcomes: Sequence[Outcome]) -> Table:
    """Return the final figures for each a, mean ± standard deviation over the seeds."""
    rows = []
    for a, group in _by_a(outcomes).items():
        results = [outcome.result for outcome in group]
        rows.append(
            [
                f"{a:g}",
                _strengths(group),
                mean_std([100 * result.accuracy for result in results]),
                mean_std([100 * result.flops_kept for result in results]),
                mean_std([100 * result.params_kept for result in results]),
                str(len(results)),
            ]
        )
    columns = ("a", "strength", "accuracy (%)", "MACs kept (%)", "weights kept (%)", "seeds")
    return Table(columns, rows, "Effect of a on DIGITS", align="r")


def effect_of_a_figure(outcomes: Sequence[Outcome], path: Path) -> Path:
    """Draw accuracy, kept MACs and kept weights over the epochs: for each a, the mean over its seeds.

    Args:
        outcomes: Outcomes whose keys are the values of a.
        path: The PNG file to write.
    """
    groups = _by_a(outcomes)
    if len(groups) > len(SHAPES):
        raise GossamerError(f"`effect_of_a_figure` draws up to {len(SHAPES)} values of a; received {len(groups)}.")
    with new_figure(11.4, 4.6) as figure:
        accuracy, flops, params = figure.subplots(1, 3)
        _draw(accuracy, groups, lambda line: 100 * line.test_accuracy)
        _draw(flops, groups, lambda line: 100 * line.flops_kept)
        _draw(params, groups, lambda line: 100 * line.params_kept)
        _zoom_accuracy(accuracy, groups)
        accuracy.set(title="Accuracy", ylabel="test accuracy (%)")
        flops.set(title="MACs kept", ylabel="MACs kept (%), log scale")
        params.set(title="Weights kept", ylabel="weights kept (%), log scale")
        for axes in (flops, params):
            _log_scale(axes)
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
            f"Means over {seeds} seeds per a. Strengths, by ascending a: {strengths}. After the vertical line, the "
            "penalty is off and zeros are held. The first epochs lie below the range of the left panel.",
        )
        return save(figure, path)


def _by_a(outcomes: Sequence[Outcome]) -> dict[float, list[Outcome]]:
    if not outcomes:
        raise GossamerError("There are no trainings with different a. Train some first.")
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


def _draw(axes: Axes, groups: dict[float, list[Outcome]], figure_of: Callable[[EpochMetrics], float]) -> None:
    for number, ((a, group), look) in enumerate(zip(groups.items(), SHAPES, strict=False)):
        # A phase may end early: the mean ends with the shortest training.
        rows = list(zip(*(outcome.history for outcome in group), strict=False))
        every = max(1, len(rows) // 8)
        axes.plot(
            [row[0].epoch for row in rows],
            [fmean(figure_of(metrics) for metrics in row) for row in rows],
            color=look.colour,
            linestyle=look.line,
            marker=look.marker,
            # Markers of different lines at different epochs, so that they do not overlap.
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
    """Return the first epoch of the second phase, if there is one."""
    return [metrics.epoch for metrics in outcome.history if metrics.phase == "hold"][:1]


def _zoom_accuracy(axes: Axes, groups: dict[float, list[Outcome]]) -> None:
    """Restrict the range to the later epochs: with the first ones, all lines would merge at the top."""
    late = [
        100 * metrics.test_accuracy
        for group in groups.values()
        for outcome in group
        for metrics in outcome.history[len(outcome.history) // 5 :]
    ]
    lowest, highest = min(late), max(late)
    margin = 0.06 * (highest - lowest) + 0.1
    axes.set_ylim(lowest - margin, min(100.4, highest + margin))


def _log_scale(axes: Axes) -> None:
    axes.set_yscale("log", nonpositive="clip")
    axes.set_ylim(top=130)
    within_a_decade = axes.get_ylim()[0] > 10
    log_percent(axes.yaxis, (1, 2, 3, 4, 5, 7) if within_a_decade else (1, 2, 5))


EXPERIMENT = Experiment(
    folder="effect-of-a",
    datasets=("digits",),
    trainings=_trainings,
    kind=lambda request: OUTCOMES,
    read=lambda request: request.outcomes(_FILE),
    outputs={
        "effect-of-a.png": effect_of_a_figure,
        "table.md": lambda outcomes, path: write_text(path, effect_of_a_table(outcomes).markdown()),
    },
    tables=lambda outcomes: [effect_of_a_table(outcomes)],
)
