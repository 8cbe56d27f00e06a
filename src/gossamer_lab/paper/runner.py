"""Trains what an experiment lacks, in several processes, and keeps what is done after every training."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache, partial
from pathlib import Path

from gossamer.errors import GossamerError
from gossamer_lab.data import Dataset
from gossamer_lab.networks import build
from gossamer_lab.paper.outcomes import Job, Outcome, read_outcomes, write_outcomes
from gossamer_lab.sweeps import Tell, in_processes
from gossamer_lab.training import RunDirectory, TrainingConfig, assemble, images_of, open_run, train

__all__ = ["LackingError", "Place", "fingerprint", "images_for", "lacking", "outcomes_of", "run_of", "train_job"]


@dataclass(frozen=True)
class Place:
    """Where an experiment reads and writes.

    Attributes:
        results: The folder of result files, one folder in it for each experiment.
        tuning: The folder of the result files of the tuning.
        runs: The folder of run directories: checkpoints and weights, which are not kept for good.
        data: The folder that is searched for data first.
        workers: How many trainings go on at once, one thread each.
        may_train: Whether what the result files lack is made.
    """

    results: Path
    tuning: Path
    runs: Path
    data: Path | None = None
    workers: int = 2
    may_train: bool = True


class LackingError(GossamerError):
    """The result files do not have all that is asked for, and nothing may be trained."""


def run_of(config: TrainingConfig, place: Place) -> RunDirectory:
    """The run directory of a configuration: experiments that need the same training share it."""
    return RunDirectory(place.runs / f"{config.dataset}-{config.regularizer}-{fingerprint(config)}")


def fingerprint(config: TrainingConfig) -> str:
    """A few letters that change with the configuration and with the sizes of its network.

    Settings that have their defaults do not count, so that a new one leaves old results what they are.
    """
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    counted = {field.name: values[field.name] for field in fields(config) if values[field.name] != field.default}
    sizes = [tuple(parameter.shape) for parameter in build(config.network or config.dataset).parameters()]
    return hashlib.sha256(f"{json.dumps(counted, sort_keys=True)} {sizes}".encode()).hexdigest()[:12]


def lacking(jobs: Sequence[Job], file: Path) -> list[Job]:
    """Those of the jobs that a file of outcomes does not have."""
    known = _known(file)
    return [job for job in dict.fromkeys(jobs) if job not in known]


def outcomes_of(jobs: Sequence[Job], file: Path, place: Place, tell: Tell = lambda text: None) -> list[Outcome]:
    """Train the jobs that ``file`` does not have and write it anew after each; return the outcomes in order.

    Raises:
        LackingError: When it does not have them all, and nothing may be trained.
    """
    known, missing = _known(file), lacking(jobs, file)
    if missing and not place.may_train:
        raise LackingError(f"{file} lacks {len(missing)} of {len(jobs)} trainings. Make them by `--train`.")
    for outcome in in_processes(partial(train_job, place), missing, place.workers, tell) if missing else ():
        known[outcome.job] = outcome
        write_outcomes(file, {**_known(file), **known}.values())  # another process may have added to it
    return [known[job] for job in jobs]


def _known(file: Path) -> dict[Job, Outcome]:
    return {outcome.job: outcome for outcome in read_outcomes(file) if _is_current(outcome)}


def _is_current(outcome: Outcome) -> bool:
    """Whether the network still has the sizes that it was trained with."""
    config = outcome.job.config
    weights = sum(
        parameter.numel() for parameter in build(config.network or config.dataset).parameters() if parameter.dim() > 1
    )
    return bool(outcome.result.measurement["total"]["weights"] == weights)


def train_job(place: Place, job: Job, tell: Tell = lambda text: None) -> Outcome:
    """Train one job, or go on with it where it was stopped."""
    run = open_run(run_of(job.config, place).path, job.config, resume=True)
    if not run.result.exists():
        dataset = images_for(job.config, place)
        model, regularizer = assemble(job.config, dataset)
        for metrics in train(model, dataset, regularizer, job.config, run):
            tell(
                f"{job.config.dataset} {job.key} seed {job.config.seed} epoch {metrics.epoch}: "
                f"accuracy {100 * metrics.test_accuracy:.2f} %, weights {100 * metrics.params_kept:.2f} %"
            )
        run.checkpoint.unlink(missing_ok=True)
    return Outcome(job, run.read_result(), tuple(run.read_metrics()))


def images_for(config: TrainingConfig, place: Place) -> Dataset:
    """The images of a configuration, kept for the next training of this process, which mostly needs the same."""
    dataset = _load(config.dataset, config.validation_fraction, config.vary, config.images, place.data)
    return dataset.slanted(config.slant)


@lru_cache(maxsize=2)
def _load(dataset: str, validation: float, vary: bool, images: int | None, folder: Path | None) -> Dataset:
    config = TrainingConfig(dataset=dataset, validation_fraction=validation, vary=vary, images=images)
    return images_of(config, folder)
