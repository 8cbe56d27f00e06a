"""Convergence on MNIST: test accuracy over the first steps under each method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.ticker import StrMethodFormatter

from gossamer.errors import GossamerError
from gossamer_lab.paper.curves import Curve, CurveFiles, read_curves
from gossamer_lab.paper.experiments import Experiment, Request, missing_results
from gossamer_lab.paper.methods import L2, METHODS, PLOTTED, TABLE
from gossamer_lab.paper.plan import Training
from gossamer_lab.paper.published import DATASET_LABELS
from gossamer_lab.paper.recipes import OURS
from gossamer_lab.paper.searches import searches
from gossamer_lab.paper.tradeoff import L2_PARAMETERS
from gossamer_lab.reporting import style
from gossamer_lab.reporting.style import add_caption, new_figure, save, tidy

__all__ = ["EXPERIMENT", "convergence_figure"]

_FILE = "convergence/curves.jsonl"

# The step at which the paper compares: nearly 0.95 for integrated Tl1, less than 0.85 for l1, SGL and CGES.
_PAPER_STEP = 1000


def _trainings(request: Request) -> list[Training]:
    recipe = replace(OURS, quick=request.quick)
    tuned = {method: searches("mnist", method, recipe) for method in TABLE}
    return [
        *(Training(_FILE, L2.key, "mnist", L2, recipe, seed, parameters=L2_PARAMETERS) for seed in request.seeds),
        *(
            Training(_FILE, method.key, "mnist", method, recipe, seed, tuned[method])
            for method in TABLE
            for seed in request.seeds
        ),
    ]


def _read(request: Request) -> list[Curve]:
    path = request.workspace.results / _FILE
    curves = [curve for curve in read_curves(path) if curve.job.config.seed in request.seeds]
    if not curves:
        raise missing_results([path])
    return curves


def convergence_figure(curves: Sequence[Curve], path: Path) -> Path:
    """Draw accuracy over steps: a line per method, and a band where it has several seeds."""
    if not curves:
        raise GossamerError("There are no curves to draw. Train some first.")
    groups = [[curve for curve in curves if curve.job.key == method.key] for method in PLOTTED]
    drawn = [group for group in groups if group]
    dataset = curves[0].job.config.dataset
    last = max(int(curve.points[-1]["step"]) for curve in curves)
    with new_figure(11.0, 5.0) as figure:
        full, zoomed = figure.subplots(1, 2)
        for axes in (full, zoomed):
            for number, group in enumerate(drawn):
                _draw_method(axes, group, number / len(drawn))
            _finish(axes, last)
        full.set_title("All steps")
        zoomed.set_title("Zoom")
        # Lines that end within a percent of each other coincide in the full range.
        late = [100 * point["accuracy"] for curve in curves for point in curve.points if point["step"] >= last / 3]
        margin = 0.05 * (max(late) - min(late)) + 0.1
        zoomed.set(xlim=(last / 3, last), ylim=(min(late) - margin, max(late) + margin))
        figure.suptitle(f"Convergence on {DATASET_LABELS.get(dataset, dataset)}", fontsize=12.5, x=0.012, ha="left")
        handles = full.get_legend_handles_labels()
        figure.legend(*handles, loc="outside upper right", ncols=len(drawn), frameon=False, handlelength=4.5)
        seeds = max(len(group) for group in drawn)
        bands = f"Lines: means over {seeds} seeds; bands: minimum to maximum. " if seeds > 1 else ""
        add_caption(
            figure,
            f"{bands}SGD at a constant learning rate, the penalty at full strength from the first step. The paper "
            f"reports, at about step {_PAPER_STEP:,} on MNIST, nearly 95 % for ITL and less than 85 % for l1, SGL and "
            "CGES.",
        )
        return save(figure, path)


def _finish(axes: Axes, last: int) -> None:
    tidy(axes)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set_xlim(0, last)
    axes.set(xlabel="step", ylabel="test accuracy (%)")
    if last >= _PAPER_STEP:
        axes.axvline(_PAPER_STEP, color="black", linewidth=0.8, zorder=1)
        axes.annotate(
            f"step {_PAPER_STEP:,}",
            (_PAPER_STEP, 0.02),
            xycoords=("data", "axes fraction"),
            xytext=(-4, 0),
            textcoords="offset points",
            ha="right",
            fontsize=8.5,
        )


def _draw_method(axes: Axes, curves: Sequence[Curve], shift: float) -> None:
    key = curves[0].job.key
    look = style.METHODS[key]
    # The mean ends with the shortest curve.
    rows = list(zip(*(curve.points for curve in curves), strict=False))
    steps = curves[0].steps[: len(rows)]
    if any(curve.steps[: len(rows)] != steps for curve in curves):
        raise GossamerError(f"The seeds of {key!r} were evaluated at different steps. Train them again.")
    every = max(1, len(steps) // 6)
    values = [[100 * point["accuracy"] for point in row] for row in rows]
    axes.plot(
        steps,
        [fmean(row) for row in values],
        color=look.colour,
        linestyle=look.line,
        marker=look.marker,
        # Markers of different lines at different steps, so that they do not overlap.
        markevery=(int(shift * every), every),
        markersize=4.5,
        linewidth=1.6,
        label=METHODS[key].short,
        zorder=3,
    )
    if len(curves) > 1:
        lowest, highest = [min(row) for row in values], [max(row) for row in values]
        axes.fill_between(steps, lowest, highest, color=look.colour, alpha=0.12, linewidth=0)


EXPERIMENT = Experiment(
    folder="convergence",
    datasets=("mnist",),
    trainings=_trainings,
    kind=lambda request: CurveFiles(40, 10) if request.quick else CurveFiles(1600, 100),
    read=_read,
    outputs={"convergence.png": convergence_figure},
)
