"""Convergence curves: test accuracy over the first steps of a training, stored as JSON lines."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from gossamer.errors import GossamerError
from gossamer.files import write_atomically
from gossamer.measurement import measure
from gossamer.proximal import attach
from gossamer_lab.data import Dataset
from gossamer_lab.paper.outcomes import Job
from gossamer_lab.paper.runner import dataset_for, silent
from gossamer_lab.paper.workspace import Workspace
from gossamer_lab.sweeps import OnProgress, run_in_processes
from gossamer_lab.training import TrainingConfig, accuracy, assemble, channels_last, epoch_random_state

__all__ = ["Curve", "CurveFiles", "convergence_curve", "read_curves", "write_curves"]


@dataclass(frozen=True)
class Curve:
    """The curve of one job.

    Attributes:
        job: Key and configuration. The phases and schedules of the configuration do not affect a curve.
        points: The output of `convergence_curve`.
    """

    job: Job
    points: tuple[dict[str, float], ...]

    @property
    def steps(self) -> list[float]:
        """The steps of the points."""
        return [point["step"] for point in self.points]

    def to_json(self) -> str:
        """Return the curve as one JSON line."""
        content = {"key": self.job.key, "config": asdict(self.job.config), "curve": self.points}
        return json.dumps(content) + "\n"

    @classmethod
    def from_json(cls, line: str) -> Curve:
        """Parse the output of `to_json`, of this version or an earlier one."""
        content: dict[str, Any] = json.loads(line)
        return cls(Job(content["key"], TrainingConfig.from_dict(content["config"])), tuple(content["curve"]))


def read_curves(path: Path) -> list[Curve]:
    """Read a file of curves; a file that does not exist has none."""
    if not path.exists():
        return []
    try:
        return [Curve.from_json(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (ValueError, KeyError, TypeError) as error:
        raise GossamerError(f"{path} is corrupt: {error}. Restore it, or delete it and train again.") from None


def write_curves(path: Path, curves: Iterable[Curve]) -> None:
    """Write curves in an order that does not depend on which finished first."""
    ordered = sorted(curves, key=lambda curve: (curve.job.key, curve.job.config.seed, curve.to_json()))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "".join(curve.to_json() for curve in ordered).encode())


@dataclass(frozen=True)
class CurveFiles:
    """Files of curves.

    Attributes:
        steps: Number of training steps.
        every: Steps between two evaluations.
    """

    steps: int
    every: int

    def missing(self, jobs: Sequence[Job], file: Path) -> list[Job]:
        """Return the jobs that the file has no curve of, with these steps."""
        known = {curve.job: curve.steps for curve in read_curves(file)}
        return [job for job in dict.fromkeys(jobs) if known.get(job) != _evaluation_steps(self.steps, self.every)]

    def work(self, jobs: Sequence[Job], workspace: Workspace) -> int:
        """Return the number of curves."""
        del workspace
        return len(jobs)

    def make(
        self, jobs: Sequence[Job], file: Path, workspace: Workspace, on_progress: OnProgress = silent
    ) -> list[Curve]:
        """Train the missing curves, rewriting the file after each; return the curves of all jobs.

        Curves of other jobs are dropped, because the figure shows the whole file.
        """
        missing = self.missing(jobs, file)
        known = {curve.job: curve for curve in read_curves(file) if curve.job in set(jobs) - set(missing)}
        work = partial(_train, workspace, self.steps, self.every)
        for curve in run_in_processes(work, missing, workspace.workers, on_progress) if missing else ():
            known[curve.job] = curve
            write_curves(file, known.values())
        return [known[job] for job in jobs]


def _train(workspace: Workspace, steps: int, every: int, job: Job, on_progress: OnProgress) -> Curve:
    curve = Curve(job, tuple(convergence_curve(job.config, dataset_for(job.config, workspace), steps, every)))
    final = 100 * curve.points[-1]["accuracy"]
    on_progress(f"{job.config.dataset} {job.key} seed {job.config.seed}, {steps:,} steps: accuracy {final:.2f} %")
    return curve


def _evaluation_steps(steps: int, every: int) -> list[float]:
    return [step for step in range(steps + 1) if step % every == 0 or step == steps]


def convergence_curve(config: TrainingConfig, dataset: Dataset, steps: int, every: int) -> list[dict[str, float]]:
    """Train for some steps; return `step`, `accuracy` and `params_kept` at the start and every so many steps.

    SGD runs at a constant learning rate with the penalty at full strength from the first step: no phases and no
    warm-up, so that a curve shows the regularizer and not a schedule. The accuracy is that on all test images.
    """
    if steps < 1 or every < 1:
        raise GossamerError(f"`steps` and `every` must be at least 1; received {steps} and {every}.")
    model, regularizer = assemble(config, dataset)
    optimizer = torch.optim.SGD(model.parameters(), lr=config.learning_rate, momentum=config.momentum)
    if regularizer is not None:
        attach(optimizer, regularizer)

    def point(step: int) -> dict[str, float]:
        test_accuracy = accuracy(model, dataset.test_images, dataset.test_labels)
        return {"step": step, "accuracy": test_accuracy, "params_kept": measure(model, dataset.example).params_kept}

    evaluated = set(_evaluation_steps(steps, every))
    points = [point(0)]
    model.train()
    for step, (images, labels) in enumerate(_batches(config, dataset, steps), start=1):
        loss = cross_entropy(model(images), labels)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        if step in evaluated:
            if not math.isfinite(loss.item()):
                raise GossamerError(f"The training diverged by step {step}. Lower the strength or the learning rate.")
            points.append(point(step))
    return points


def _batches(config: TrainingConfig, dataset: Dataset, steps: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield a batch per step, in the same order as `train`."""
    epoch, done = 0, 0
    while done < steps:
        with epoch_random_state(config.seed, epoch):
            order = torch.randperm(len(dataset.train_images))
            for batch in torch.split(order, config.batch_size)[: steps - done]:
                images, labels = dataset.training_batch(batch)
                yield channels_last(images), labels
                done += 1
        epoch += 1
