"""Tuning: strength and shape of a penalty are chosen by a search on validation images.

A criterion values every trial. Where it compares with the dense network, that is trained first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from gossamer.errors import GossamerError
from gossamer_lab.paper.criteria import MostAccurateWithinSize, SmallestWithinDrop
from gossamer_lab.paper.methods import DENSE, Method
from gossamer_lab.paper.outcomes import Job
from gossamer_lab.paper.recipes import Recipe
from gossamer_lab.paper.runner import OUTCOMES, fingerprint, train_job
from gossamer_lab.paper.workspace import Workspace
from gossamer_lab.sweeps import NoValueError, OnProgress, Study, Trial, read_trials, run_studies, write_trials
from gossamer_lab.training import DivergedError, TrainingConfig

__all__ = ["Search", "Shape", "best_parameters", "finished_trials", "tune"]

# Parameters besides the strength, as pairs, so that a search is hashable.
Shape = tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Search:
    """The search for the strength of one method, with one shape, on one data set.

    Attributes:
        dataset: Name of the data set.
        method: The method.
        recipe: The training recipe.
        strengths: The grid, ascending.
        trials: Maximum number of trials.
        criterion: Values the trials.
        validation: Fraction of the training images used for validation.
        shape: Parameters besides the strength.
    """

    dataset: str
    method: Method
    recipe: Recipe
    strengths: tuple[float, ...]
    trials: int
    criterion: SmallestWithinDrop | MostAccurateWithinSize
    validation: float
    shape: Shape = ()

    @property
    def study(self) -> Study:
        """The search as a study. Its name contains a hash of everything its trials depend on."""
        # The criterion enters by its values only: committed trials are stored under these names.
        target = " ".join(str(getattr(self.criterion, field.name)) for field in fields(self.criterion))
        content = f"{fingerprint(self.configuration({}))} {target} {self.strengths} {self.trials}"
        digest = hashlib.sha256(content.encode()).hexdigest()[:8]
        shape = "".join(f"-{name}-{value:g}" for name, value in self.shape)
        name = f"{self.recipe.name}-{self.dataset}-{self.method.key}{shape}-{digest}"
        return self.criterion.study(name, self.strengths, self.trials)

    @property
    def dense(self) -> Job:
        """The training without a penalty on the same images."""
        config = self.recipe.configuration(self.dataset, DENSE, {}, validation_fraction=self.validation)
        return Job(DENSE.key, config)

    def configuration(self, parameters: Mapping[str, float]) -> TrainingConfig:
        """Return the configuration of a trial."""
        return self.recipe.configuration(
            self.dataset, self.method, {**dict(self.shape), **parameters}, validation_fraction=self.validation
        )


@dataclass(frozen=True)
class _Objective:
    """Trains a network and values it.

    Attributes:
        search: The search.
        dense: Accuracy without a penalty; None if the criterion does not need it.
        workspace: The folders.
    """

    search: Search
    dense: float | None
    workspace: Workspace

    def __call__(self, parameters: dict[str, float]) -> tuple[float, dict[str, float]]:
        job = Job(self.search.method.key, self.search.configuration(parameters))
        try:
            result = train_job(self.workspace, job).result
        except DivergedError as error:
            raise NoValueError(str(error)) from None
        figures = {
            "accuracy": result.accuracy,
            "flops_kept": result.flops_kept,
            "params_kept": result.params_kept,
        }
        if self.dense is not None:
            figures["accuracy_dense"] = self.dense
        return self.search.criterion.value(figures), figures


def finished_trials(searches: Sequence[Search], workspace: Workspace) -> dict[Search, list[Trial]]:
    """Read the finished trials of searches from the tuning results."""
    stored = {dataset: _stored(dataset, workspace) for dataset in {search.dataset for search in searches}}
    names = {search: search.study.name for search in searches}
    return {search: [trial for trial in stored[search.dataset] if trial.study == names[search]] for search in searches}


def tune(searches: Sequence[Search], workspace: Workspace, on_progress: OnProgress = lambda message: None) -> None:
    """Run searches to their ends. Trials are stored as they finish, in one file per data set."""
    for dataset in dict.fromkeys(search.dataset for search in searches):
        _tune(dataset, [search for search in searches if search.dataset == dataset], workspace, on_progress)


def _tune(dataset: str, searches: Sequence[Search], workspace: Workspace, on_progress: OnProgress) -> None:
    known = {_point(trial): trial for trial in _stored(dataset, workspace)}

    def store(trial: Trial) -> None:
        known[_point(trial)] = trial
        others = {_point(other): other for other in _stored(dataset, workspace)}  # of concurrent processes
        write_trials(_file(dataset, workspace), {**others, **known}.values())
        on_progress(f"{trial.study} {trial.parameters}: {trial.failure or trial.figures}")

    dense = [search.dense for search in searches if search.criterion.needs_dense]
    outcomes = OUTCOMES.make(dense, workspace.tuning / f"{dataset}-dense.jsonl", workspace)
    accuracies = {outcome.job: outcome.result.accuracy for outcome in outcomes}
    studies = [
        (
            search.study,
            _Objective(search, accuracies[search.dense] if search.criterion.needs_dense else None, workspace),
        )
        for search in searches
    ]
    storage = workspace.runs / f"studies-{dataset}.db"
    for trial in run_studies(studies, storage, workers=workspace.workers, known=list(known.values()), on_trial=store):
        if _point(trial) not in known:  # finished, but not stored, when an earlier process was killed
            store(trial)


def _file(dataset: str, workspace: Workspace) -> Path:
    return workspace.tuning / f"{dataset}.jsonl"


def _stored(dataset: str, workspace: Workspace) -> list[Trial]:
    file = _file(dataset, workspace)
    return read_trials(file) if file.exists() else []


def _point(trial: Trial) -> tuple[str, float]:
    return trial.study, trial.parameters["strength"]


def best_parameters(trials: Mapping[Search, Sequence[Trial]]) -> dict[str, float]:
    """Return strength and shape of the best trial of some searches."""

    def rank(candidate: tuple[Search, Trial]) -> tuple[float, float, float]:
        # Without any zeros all networks have one size: then the more accurate, then the weaker penalty.
        trial = candidate[1]
        return trial.value, -trial.figures["accuracy"], trial.parameters["strength"]

    succeeded = [(search, trial) for search in trials for trial in trials[search] if trial.failure is None]
    if not succeeded:
        raise GossamerError(f"No trial of {', '.join(search.study.name for search in trials)} succeeded.")
    search, best = min(succeeded, key=rank)
    return {**dict(search.shape), **best.parameters}
