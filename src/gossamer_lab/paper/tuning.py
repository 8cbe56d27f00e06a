"""How the strength of each penalty, and its shape, are chosen: by a search on a part of the training images.

A rule values every trial; where it compares with the network without a penalty, that is trained first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from gossamer.errors import GossamerError
from gossamer_lab.paper.compared import DENSE, Compared
from gossamer_lab.paper.outcomes import Job
from gossamer_lab.paper.recipes import Recipe
from gossamer_lab.paper.rules import MostAccurate, Smallest
from gossamer_lab.paper.runner import LackingError, Place, fingerprint, outcomes_of, train_job
from gossamer_lab.sweeps import NoValueError, Study, Tell, Trial, read_trials, run_studies, write_trials
from gossamer_lab.training import DivergedError, TrainingConfig

__all__ = ["Search", "Shape", "choose", "trials_left", "tune"]

# Parameters besides the strength, as pairs, so that a search can be a key.
Shape = tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Search:
    """The search for the strength of one method, in one shape, on one data set.

    Attributes:
        dataset: Its name.
        compared: The method.
        recipe: The training.
        ladder: The strengths, ascending.
        trials: The most that are tried.
        rule: Which of them is taken.
        validation: Part of the training images that they are tried on.
        shape: Parameters besides the strength.
    """

    dataset: str
    compared: Compared
    recipe: Recipe
    ladder: tuple[float, ...]
    trials: int
    rule: Smallest | MostAccurate
    validation: float
    shape: Shape = ()

    @property
    def study(self) -> Study:
        """The search as a study. Its name changes with everything that its trials depend on."""
        # What is asked for stands by its values alone, as it did when there was one rule: kept trials keep their study.
        asked = " ".join(str(getattr(self.rule, field.name)) for field in fields(self.rule))
        depends_on = f"{fingerprint(self.configuration({}))} {asked} {self.ladder} {self.trials}"
        mark = hashlib.sha256(depends_on.encode()).hexdigest()[:8]
        shape = "".join(f"-{name}-{value:g}" for name, value in self.shape)
        name = f"{self.recipe.name}-{self.dataset}-{self.compared.key}{shape}-{mark}"
        return self.rule.study(name, self.ladder, self.trials)

    @property
    def dense(self) -> Job:
        """The training without a penalty on the same images."""
        config = self.recipe.configuration(self.dataset, DENSE, {}, validation_fraction=self.validation)
        return Job(DENSE.key, config)

    def configuration(self, parameters: Mapping[str, float]) -> TrainingConfig:
        """The training of one trial."""
        return self.recipe.configuration(
            self.dataset, self.compared, {**dict(self.shape), **parameters}, validation_fraction=self.validation
        )


@dataclass(frozen=True)
class _Objective:
    """What a trial does: trains, and has the rule value the network. ``dense`` is the accuracy without a penalty."""

    search: Search
    dense: float | None
    place: Place

    def __call__(self, parameters: dict[str, float]) -> tuple[float, dict[str, float]]:
        job = Job(self.search.compared.key, self.search.configuration(parameters))
        try:
            result = train_job(self.place, job).result
        except DivergedError as error:
            raise NoValueError(str(error)) from None
        figures = {
            "accuracy": result.accuracy,
            "flops_kept": result.flops_kept,
            "params_kept": result.params_kept,
        }
        if self.dense is not None:
            figures["accuracy_dense"] = self.dense
        return self.search.rule.value(figures), figures


def trials_left(searches: Sequence[Search], place: Place) -> int:
    """The most trials that the searches still take."""
    left = 0
    for search in searches:
        done = [trial for trial in _kept(search.dataset, place) if trial.study == search.study.name]
        left += search.study.trials_left(done)
    return left


def tune(searches: Sequence[Search], place: Place, tell: Tell = lambda text: None) -> dict[Search, list[Trial]]:
    """Bring all searches to their ends; their trials are kept as they end, in one file for each data set.

    Where that file has them all, nothing is trained.
    """
    trials: dict[Search, list[Trial]] = {}
    for dataset in dict.fromkeys(search.dataset for search in searches):
        trials |= _tune(dataset, [search for search in searches if search.dataset == dataset], place, tell)
    return trials


def _tune(dataset: str, searches: Sequence[Search], place: Place, tell: Tell) -> dict[Search, list[Trial]]:
    file = _file(dataset, place)
    kept = {_point(trial): trial for trial in _kept(dataset, place)}

    def keep(trial: Trial) -> None:
        kept[_point(trial)] = trial
        others = {_point(other): other for other in _kept(dataset, place)}  # another process may have added some
        write_trials(file, {**others, **kept}.values())
        tell(f"{trial.study} {trial.parameters}: {trial.failure or trial.figures}")

    def trials_of(search: Search) -> list[Trial]:
        return [trial for trial in kept.values() if trial.study == search.study.name]

    lacking = [search for search in searches if search.study.next_points(trials_of(search))]
    if lacking and not place.may_train:
        names = ", ".join(search.study.name for search in lacking)
        raise LackingError(f"{file} lacks trials of {names}. Make them by `--train`.")
    if lacking:
        dense = [search.dense for search in lacking if search.rule.needs_dense]
        accuracies = {
            outcome.job: outcome.result.accuracy
            for outcome in outcomes_of(dense, place.tuning / f"{dataset}-dense.jsonl", place)
        }
        studies = [
            (search.study, _Objective(search, accuracies[search.dense] if search.rule.needs_dense else None, place))
            for search in lacking
        ]
        storage = place.runs / f"studies-{dataset}.db"
        for trial in run_studies(studies, storage, workers=place.workers, known=list(kept.values()), on_trial=keep):
            if _point(trial) not in kept:  # ended, but not kept, when the last call was killed
                keep(trial)
    return {search: trials_of(search) for search in searches}


def _file(dataset: str, place: Place) -> Path:
    return place.tuning / f"{dataset}.jsonl"


def _kept(dataset: str, place: Place) -> list[Trial]:
    file = _file(dataset, place)
    return read_trials(file) if file.exists() else []


def _point(trial: Trial) -> tuple[str, float]:
    return trial.study, trial.parameters["strength"]


def choose(trials: Mapping[Search, Sequence[Trial]]) -> dict[str, float]:
    """Strength and shape of the best trial of some searches."""

    def rank(candidate: tuple[Search, Trial]) -> tuple[float, float, float]:
        # Where nothing becomes zero, all are of one size: then the more accurate, then the weaker penalty.
        trial = candidate[1]
        return trial.value, -trial.figures["accuracy"], trial.parameters["strength"]

    ended = [(search, trial) for search in trials for trial in trials[search] if trial.failure is None]
    if not ended:
        raise GossamerError(f"No trial of {', '.join(search.study.name for search in trials)} ended well.")
    search, best = min(ended, key=rank)
    return {**dict(search.shape), **best.parameters}
