"""How fast networks converge: test accuracy over the first steps of training, under each regularizer."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.ticker import StrMethodFormatter
from torch import Tensor
from torch.nn.functional import cross_entropy

from gossamer.errors import GossamerError
from gossamer.files import write_atomically
from gossamer.measurement import measure
from gossamer.proximal import attach
from gossamer_lab.data import Dataset
from gossamer_lab.paper.compared import DRAWN
from gossamer_lab.paper.outcomes import Job
from gossamer_lab.paper.runner import LackingError, Place, images_for
from gossamer_lab.paper.style import DATASET_LABELS, STYLES, add_caption, new_figure, save, tidy
from gossamer_lab.sweeps import Tell, in_processes
from gossamer_lab.training import TrainingConfig, accuracy, assemble, fast_layout, random_numbers_of

__all__ = [
    "Curve",
    "convergence_curve",
    "convergence_figure",
    "curves_lacking",
    "curves_of",
    "read_curves",
    "write_curves",
]


# Where the paper compares: "nearly 0.95" for integrated Tl1, "less than 0.85" for l1, SGL and CGES.
_COMPARED_AT = 1000


@dataclass(frozen=True)
class Curve:
    """The beginning of one training.

    Attributes:
        job: Method and configuration; of this, the phases and their schedules have no part in the curve.
        points: What :func:`convergence_curve` returned.
    """

    job: Job
    points: tuple[dict[str, float], ...]

    @property
    def steps(self) -> list[float]:
        """Where it was measured."""
        return [point["step"] for point in self.points]

    def to_json(self) -> str:
        """Write it as one line."""
        content = {"key": self.job.key, "config": asdict(self.job.config), "curve": self.points}
        return json.dumps(content) + "\n"

    @classmethod
    def from_json(cls, line: str) -> Curve:
        """Read what :meth:`to_json` wrote."""
        content: dict[str, Any] = json.loads(line)
        return cls(Job(content["key"], TrainingConfig(**content["config"])), tuple(content["curve"]))


def read_curves(path: Path) -> list[Curve]:
    """Read a file of curves; none when it is not there."""
    if not path.exists():
        return []
    try:
        return [Curve.from_json(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (ValueError, KeyError, TypeError, GossamerError) as error:
        raise GossamerError(f"{path} is damaged: {error}. Restore it, or delete it to make it again.") from None


def write_curves(path: Path, curves: Iterable[Curve]) -> None:
    """Write all curves, in an order that does not depend on which ended first."""
    ordered = sorted(curves, key=lambda curve: (curve.job.key, curve.job.config.seed, curve.to_json()))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "".join(curve.to_json() for curve in ordered).encode())


def curves_lacking(jobs: Sequence[Job], steps: int, every: int, file: Path) -> list[Job]:
    """Those of the jobs that a file does not have with these steps."""
    known = {curve.job: curve.steps for curve in read_curves(file)}
    return [job for job in dict.fromkeys(jobs) if known.get(job) != _measured_at(steps, every)]


def curves_of(
    jobs: Sequence[Job], steps: int, every: int, file: Path, place: Place, tell: Tell = lambda text: None
) -> list[Curve]:
    """Train the jobs that ``file`` does not have with these steps, and write it anew after each; return the curves."""
    missing = curves_lacking(jobs, steps, every, file)
    if missing and not place.may_train:
        raise LackingError(f"{file} lacks {len(missing)} of {len(jobs)} curves. Make them by `--train`.")
    # What belongs to other settings goes, because the figure shows the whole file.
    known = {curve.job: curve for curve in read_curves(file) if curve.job in set(jobs) - set(missing)}
    work = partial(_train, place, steps, every)
    for curve in in_processes(work, missing, place.workers, tell) if missing else ():
        known[curve.job] = curve
        write_curves(file, known.values())
    return [known[job] for job in jobs]


def _train(place: Place, steps: int, every: int, job: Job, tell: Tell) -> Curve:
    curve = Curve(job, tuple(convergence_curve(job.config, images_for(job.config, place), steps, every)))
    right = 100 * curve.points[-1]["accuracy"]
    tell(f"{job.config.dataset} {job.key} seed {job.config.seed}, {steps:,} steps: accuracy {right:.2f} %")
    return curve


def _measured_at(steps: int, every: int) -> list[float]:
    return [step for step in range(steps + 1) if step % every == 0 or step == steps]


def convergence_curve(config: TrainingConfig, dataset: Dataset, steps: int, every: int) -> list[dict[str, float]]:
    """Train for some steps and return `step`, `accuracy` and `params_kept` before them and after every so many.

    SGD with the batch size, momentum and first learning rate of the configuration, which stays constant, and the
    penalty at its full strength from the first step on: no phases, no warm-up, nothing held, so that a curve shows
    the regularizer and not a schedule. The accuracy is that on all test images.
    """
    if steps < 1 or every < 1:
        raise GossamerError(f"`steps` and `every` must be at least 1; received {steps} and {every}.")
    model, regularizer = assemble(config, dataset)
    optimizer = torch.optim.SGD(model.parameters(), lr=config.learning_rate, momentum=config.momentum)
    if regularizer is not None:
        attach(optimizer, regularizer)

    def point(step: int) -> dict[str, float]:
        right = accuracy(model, dataset.test_images, dataset.test_labels)
        return {"step": step, "accuracy": right, "params_kept": measure(model, dataset.example).params_kept}

    measured_at = set(_measured_at(steps, every))
    points = [point(0)]
    model.train()
    for step, (images, labels) in enumerate(_batches(config, dataset, steps), start=1):
        loss = cross_entropy(model(images), labels)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        if step in measured_at:
            if not math.isfinite(loss.item()):
                raise GossamerError(f"The training diverged by step {step}. Lower the strength or the rate.")
            points.append(point(step))
    return points


def _batches(config: TrainingConfig, dataset: Dataset, steps: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield as many batches as there are steps, epoch after epoch, in the order in which `train` sees them, too."""
    epoch, done = 0, 0
    while done < steps:
        with random_numbers_of(config.seed, epoch):
            order = torch.randperm(len(dataset.train_images))
            for batch in torch.split(order, config.batch_size)[: steps - done]:
                images, labels = dataset.training_batch(batch)
                yield fast_layout(images), labels
                done += 1
        epoch += 1


def convergence_figure(path_json: Path, path_png: Path) -> Path:
    """Draw accuracy over steps from a file of curves: a line for each method, and a band where it has several seeds."""
    curves = read_curves(path_json)
    if not curves:
        raise GossamerError(f"{path_json} holds no curves. Train some before they are drawn.")
    groups = [[curve for curve in curves if curve.job.key == method.key] for method in DRAWN]
    drawn = [group for group in groups if group]
    dataset = curves[0].job.config.dataset
    last = max(int(curve.points[-1]["step"]) for curve in curves)
    with new_figure(11.0, 5.0) as figure:
        whole, closer = figure.subplots(1, 2)
        for axes in (whole, closer):
            for number, group in enumerate(drawn):
                _draw_method(axes, group, number / len(drawn))
            _finish(axes, last)
        whole.set_title("From the first step")
        closer.set_title("The same, closer")
        # Lines that end within a percent of each other are one line in the whole picture.
        late = [100 * point["accuracy"] for curve in curves for point in curve.points if point["step"] >= last / 3]
        margin = 0.05 * (max(late) - min(late)) + 0.1
        closer.set(xlim=(last / 3, last), ylim=(min(late) - margin, max(late) + margin))
        figure.suptitle(f"Convergence on {DATASET_LABELS.get(dataset, dataset)}", fontsize=12.5, x=0.012, ha="left")
        handles = whole.get_legend_handles_labels()
        figure.legend(*handles, loc="outside upper right", ncols=len(drawn), frameon=False, handlelength=4.5)
        seeds = max(len(group) for group in drawn)
        bands = f"Lines are means over {seeds} seeds, bands reach from the worst to the best. " if seeds > 1 else ""
        add_caption(
            figure,
            f"{bands}SGD at a constant learning rate, the penalty at full strength from the first step. The paper "
            f"has, at about step {_COMPARED_AT:,} on MNIST, nearly 95 % for ITL, less than 85 % for l1, SGL and CGES.",
        )
        return save(figure, path_png)


def _finish(axes: Axes, last: int) -> None:
    tidy(axes)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set_xlim(0, last)
    axes.set(xlabel="step (one batch each)", ylabel="test images right (%)")
    if last >= _COMPARED_AT:
        axes.axvline(_COMPARED_AT, color="black", linewidth=0.8, zorder=1)
        axes.annotate(
            f"step {_COMPARED_AT:,}",
            (_COMPARED_AT, 0.02),
            xycoords=("data", "axes fraction"),
            xytext=(-4, 0),
            textcoords="offset points",
            ha="right",
            fontsize=8.5,
        )


def _draw_method(axes: Axes, curves: Sequence[Curve], shift: float) -> None:
    style = STYLES[curves[0].job.key]
    # Seeds may have been trained for different times: the mean ends with the shortest.
    rows = list(zip(*(curve.points for curve in curves), strict=False))
    steps = curves[0].steps[: len(rows)]
    if any(curve.steps[: len(rows)] != steps for curve in curves):
        raise GossamerError(f"The seeds of {curves[0].job.key!r} were measured at different steps. Train them anew.")
    every = max(1, len(steps) // 6)
    values = [[100 * point["accuracy"] for point in row] for row in rows]
    axes.plot(
        steps,
        [fmean(row) for row in values],
        color=style.colour,
        linestyle=style.line,
        marker=style.marker,
        # Markers of different lines at different steps, so that they do not cover each other.
        markevery=(int(shift * every), every),
        markersize=4.5,
        linewidth=1.6,
        label=style.label,
        zorder=3,
    )
    if len(curves) > 1:
        lowest, highest = [min(row) for row in values], [max(row) for row in values]
        axes.fill_between(steps, lowest, highest, color=style.colour, alpha=0.12, linewidth=0)
