"""The trainings of an experiment, and what is missing of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gossamer_lab.paper.experiments import Experiment, Request
from gossamer_lab.paper.methods import Method
from gossamer_lab.paper.outcomes import Job
from gossamer_lab.paper.recipes import Recipe
from gossamer_lab.paper.tuning import Search, best_parameters, finished_trials, tune

__all__ = ["Missing", "Reporter", "Training", "find_missing", "make_missing"]


@dataclass(frozen=True)
class Training:
    """A training of an experiment, before its settings are tuned.

    Attributes:
        file: Result file, relative to the results folder.
        key: Key of its job.
        dataset: Name of the data set.
        method: The method.
        recipe: The training recipe.
        seed: Seed of the training.
        searches: The searches that determine strength and shape; empty if they are given.
        parameters: Strength and shape where they are not tuned.
        factor: Multiplier of the strength.
        changes: Changes to the configuration.
    """

    file: str
    key: str
    dataset: str
    method: Method
    recipe: Recipe
    seed: int
    searches: tuple[Search, ...] = ()
    parameters: tuple[tuple[str, float], ...] = ()
    factor: float = 1.0
    changes: tuple[tuple[str, Any], ...] = ()

    def job(self, tuned: Mapping[str, float]) -> Job:
        """Return the job with the tuned strength and shape."""
        parameters = {**dict(self.parameters), **tuned}
        if "strength" in parameters:
            parameters["strength"] *= self.factor
        config = self.recipe.configuration(self.dataset, self.method, parameters, self.seed, **dict(self.changes))
        return Job(self.key, config)


@dataclass(frozen=True)
class Missing:
    """What an experiment requires and what the result files lack of it.

    Attributes:
        trials: Unfinished searches, with the maximum number of trials left.
        required: The required jobs by result file. Those that depend on an unfinished search are not known yet.
        jobs: The required jobs that the result files lack.
    """

    trials: Mapping[Search, int]
    required: Mapping[Path, list[Job]]
    jobs: Mapping[Path, list[Job]]

    def __bool__(self) -> bool:
        return bool(self.trials) or any(self.jobs.values())

    def lines(self) -> list[str]:
        """Describe what is missing, one line per search or result file."""
        searches = [f"search {search.study.name}: up to {count} trials" for search, count in self.trials.items()]
        files = [f"{file}: {len(jobs)} of {len(self.required[file])} trainings" for file, jobs in self.jobs.items()]
        return searches + [line for line, jobs in zip(files, self.jobs.values(), strict=True) if jobs]


class Reporter(Protocol):
    """Displays the progress of long work."""

    def start(self, title: str, total: int) -> None:
        """Start a task of `total` parts."""

    def advance(self, message: str) -> None:
        """Report that one more part is finished."""


def find_missing(experiment: Experiment[Any], request: Request) -> Missing:
    """Determine the jobs of an experiment, and which of them the result files lack."""
    trainings, kind = experiment.trainings(request), experiment.kind(request)
    trials = finished_trials(
        list(dict.fromkeys(search for training in trainings for search in training.searches)), request.workspace
    )
    left = {search: search.study.trials_left(finished) for search, finished in trials.items()}
    required: dict[Path, list[Job]] = {}
    for training in trainings:
        if not any(left[search] for search in training.searches):
            tuned = {search: trials[search] for search in training.searches}
            job = training.job(best_parameters(tuned) if tuned else {})
            required.setdefault(request.workspace.results / training.file, []).append(job)
    return Missing(
        {search: count for search, count in left.items() if count},
        required,
        {file: kind.missing(jobs, file) for file, jobs in required.items()},
    )


def make_missing(experiment: Experiment[Any], request: Request, reporter: Reporter) -> None:
    """Tune and train what the result files lack. Interrupted at any time, the next call continues."""
    if experiment.compute is not None:
        experiment.compute(request)
    missing = find_missing(experiment, request)
    if missing.trials:
        reporter.start("tuning", sum(missing.trials.values()))
        tune(list(missing.trials), request.workspace, reporter.advance)
        missing = find_missing(experiment, request)
    kind = experiment.kind(request)
    incomplete = {file: jobs for file, jobs in missing.jobs.items() if jobs}
    if incomplete:
        reporter.start("training", sum(kind.work(jobs, request.workspace) for jobs in incomplete.values()))
    for file in incomplete:
        kind.make(missing.required[file], file, request.workspace, reporter.advance)
