"""Training of jobs in parallel processes, each outcome stored as it finishes."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache, partial
from pathlib import Path
from typing import Protocol

from gossamer_lab.data import Dataset
from gossamer_lab.networks import parameter_shapes
from gossamer_lab.paper.outcomes import Job, Outcome, read_outcomes, write_outcomes
from gossamer_lab.paper.workspace import Workspace
from gossamer_lab.sweeps import OnProgress, run_in_processes
from gossamer_lab.training import EpochMetrics, RunDirectory, TrainingConfig, finished_run, load_dataset
from gossamer_lab.training.config import RENAMED

__all__ = [
    "OUTCOMES",
    "OutcomeFiles",
    "ResultKind",
    "dataset_for",
    "fingerprint",
    "run_directory",
    "silent",
    "train_job",
]


class ResultKind(Protocol):
    """A kind of result file: which jobs it has, and how to make those it lacks."""

    def missing(self, jobs: Sequence[Job], file: Path) -> list[Job]:
        """Return the jobs that the file has no result of."""

    def work(self, jobs: Sequence[Job], workspace: Workspace) -> int:
        """Return the number of progress messages that making these jobs gives."""

    def make(self, jobs: Sequence[Job], file: Path, workspace: Workspace, on_progress: OnProgress) -> object:
        """Make the results of `jobs` that the file lacks. The file may hold results of other jobs, too."""


def silent(message: str) -> None:
    """Ignore a progress message."""


def run_directory(config: TrainingConfig, workspace: Workspace) -> RunDirectory:
    """Return the run directory of a configuration, which all experiments share."""
    return RunDirectory(workspace.runs / f"{config.dataset}-{config.regularizer}-{fingerprint(config)}")


def fingerprint(config: TrainingConfig) -> str:
    """Return a short hash of a configuration and the sizes of its network.

    Fields that have their defaults do not count, so that adding a field leaves existing fingerprints as they are.
    Renamed fields count under their earlier names for the same reason.
    """
    counted = {
        RENAMED.get(field.name, field.name): getattr(config, field.name)
        for field in fields(config)
        if getattr(config, field.name) != field.default
    }
    sizes = list(parameter_shapes(config.network or config.dataset))
    return hashlib.sha256(f"{json.dumps(counted, sort_keys=True)} {sizes}".encode()).hexdigest()[:12]


@dataclass(frozen=True)
class OutcomeFiles:
    """Files of outcomes, one JSON line per job."""

    def missing(self, jobs: Sequence[Job], file: Path) -> list[Job]:
        """Return the jobs that the file has no current outcome of."""
        known = _current(file)
        return [job for job in dict.fromkeys(jobs) if job not in known]

    def work(self, jobs: Sequence[Job], workspace: Workspace) -> int:
        """Return the number of epochs of the jobs that no other experiment has trained yet."""
        return sum(job.config.epochs for job in jobs if not run_directory(job.config, workspace).result.exists())

    def make(
        self, jobs: Sequence[Job], file: Path, workspace: Workspace, on_progress: OnProgress = silent
    ) -> list[Outcome]:
        """Train the missing jobs, rewriting the file after each; return the outcomes of all jobs."""
        known, missing = _current(file), self.missing(jobs, file)
        work = partial(train_job, workspace)
        for outcome in run_in_processes(work, missing, workspace.workers, on_progress) if missing else ():
            known[outcome.job] = outcome
            merged = {**_current(file), **known}  # a concurrent process may have added to the file
            write_outcomes(file, _without_superseded(merged.values(), jobs))
        return [known[job] for job in jobs]


OUTCOMES = OutcomeFiles()


def _current(file: Path) -> dict[Job, Outcome]:
    return {outcome.job: outcome for outcome in read_outcomes(file) if _is_current(outcome)}


def _is_current(outcome: Outcome) -> bool:
    """Whether the network still has the size that it was trained with."""
    config = outcome.job.config
    shapes = parameter_shapes(config.network or config.dataset)
    weights = sum(math.prod(shape) for shape in shapes if len(shape) > 1)
    return bool(outcome.result.measurement["total"]["weights"] == weights)


def _without_superseded(outcomes: Iterable[Outcome], jobs: Sequence[Job]) -> list[Outcome]:
    """Drop outcomes of other settings than those of `jobs` under the same key, data set and seed."""
    wanted, names = set(jobs), {_name(job) for job in jobs}
    return [outcome for outcome in outcomes if outcome.job in wanted or _name(outcome.job) not in names]


def _name(job: Job) -> tuple[str, str, int]:
    return job.key, job.config.dataset, job.config.seed


def train_job(workspace: Workspace, job: Job, on_progress: OnProgress = silent) -> Outcome:
    """Train a job, or resume it if it was interrupted."""

    def report(metrics: EpochMetrics) -> None:
        on_progress(
            f"{job.config.dataset} {job.key} seed {job.config.seed} epoch {metrics.epoch}: "
            f"accuracy {100 * metrics.test_accuracy:.2f} %, weights {100 * metrics.params_kept:.2f} %"
        )

    path = run_directory(job.config, workspace).path
    run = finished_run(job.config, path, dataset=lambda config: dataset_for(config, workspace), on_epoch=report)
    return Outcome(job, run.read_result(), tuple(run.read_metrics()))


def dataset_for(config: TrainingConfig, workspace: Workspace) -> Dataset:
    """Load the data set of a configuration, cached for the next job of this process."""
    dataset = _load(config.dataset, config.validation_fraction, config.augment, config.images, workspace.data)
    return dataset.with_affine(config.affine)


@lru_cache(maxsize=2)
def _load(dataset: str, validation: float, augment: bool, images: int | None, folder: Path | None) -> Dataset:
    config = TrainingConfig(dataset=dataset, validation_fraction=validation, augment=augment, images=images)
    return load_dataset(config, folder)
