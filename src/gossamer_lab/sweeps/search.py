"""Searches that any number of processes and machines work on: an Optuna study whose trials are slots of a queue.

A search has a fixed number of slots. A slot of a grid has its point; a slot of a Pareto search gets it from the sampler
when it is started. The study holds everything, so all processes are equal, and each may be killed at any time:

    started      a worker takes a waiting trial. The database gives each trial to one worker only.
    killed       its heartbeat stops, and another worker marks the trial as failed.
    lost         a slot without a waiting, running or finished trial is added again, at the same point. Every worker
                 looks for such slots before it takes a trial.

If two workers add the same slot, the one trial is evaluated and the other returned. Every slot has one result.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from gossamer.errors import GossamerError
from gossamer_lab.sweeps.integrity import checked, file_fault, readable, seal
from gossamer_lab.sweeps.storage import require_optuna

if TYPE_CHECKING:
    import optuna

__all__ = ["Pareto", "Result", "Search", "States", "open_search", "results", "states", "work"]

_HEARTBEAT = 15  # seconds
_ATTEMPTS = 4  # of a slot whose trials kill their workers
_SLOT = "slot"
_RETURNED = "returned"

Point = dict[str, float]
# The objective: minimises both numbers. It gets the trial for its number and for reporting, and the point.
Pareto = Callable[["optuna.Trial", Point], tuple[float, float]]


@dataclass(frozen=True)
class Search:
    """What is searched: the points of a grid, or a number of points that a sampler chooses from ranges.

    Attributes:
        name: Name of the study.
        values: The values of each parameter; for a Pareto search its smallest and its largest, on a logarithmic scale.
        trials: Number of trials of a Pareto search; None for a grid.
        seed: Seed of the sampler.
        heartbeat: Seconds between two signs of life of a running trial; after two of them it counts as killed.
    """

    name: str
    values: Mapping[str, Sequence[float]]
    trials: int | None = None
    seed: int = 0
    heartbeat: int = _HEARTBEAT

    def points(self) -> list[Point]:
        """The point of each slot; empty where the sampler chooses."""
        if self.trials is not None:
            return [{} for _ in range(self.trials)]
        return [dict(zip(self.values, point, strict=True)) for point in product(*self.values.values())]

    def describe(self) -> dict[str, Any]:
        """What has to be the same in all processes, as plain data."""
        return {"values": {name: list(map(float, each)) for name, each in self.values.items()}, "trials": self.trials}


@dataclass(frozen=True)
class Result:
    """The trial that fills a slot: finished, or pruned (without values)."""

    slot: int
    number: int
    point: Point
    values: tuple[float, float] | None
    figures: dict[str, Any]


@dataclass(frozen=True)
class States:
    """How many slots are finished, pruned, failed, running, and waiting."""

    finished: int
    pruned: int
    failed: int
    running: int
    waiting: int

    @property
    def done(self) -> bool:
        """Whether nothing is left to do."""
        return self.running == 0 and self.waiting == 0


@contextmanager
def open_search(search: Search, url: str) -> Iterator[optuna.Study]:
    """Open or create the study of a search, and add the slots that it lacks.

    Raises:
        GossamerError: If the storage cannot be opened, or has a study of this name with other points.
    """
    require_optuna()
    import optuna

    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    sampler = optuna.samplers.TPESampler(seed=None if search.trials is None else search.seed, constant_liar=True)
    storage = _storage(url, search.heartbeat)
    try:
        with readable(f"The study {search.name!r}"):
            study = _joined(search, storage, sampler)
        yield study
    finally:
        storage.remove_session()
        storage.engine.dispose()


def _joined(search: Search, storage: optuna.storages.RDBStorage, sampler: optuna.samplers.BaseSampler) -> optuna.Study:
    import optuna

    study = optuna.create_study(
        storage=storage,
        study_name=search.name,
        directions=["minimize", "minimize"],
        sampler=sampler,
        load_if_exists=True,
    )
    known = study.user_attrs.get("search")
    if known is not None and known != search.describe():
        raise GossamerError(
            f"The storage has a study {search.name!r} of {known}; this one is of {search.describe()}. Give the same "
            "options, or another `--name`."
        )
    study.set_user_attr("search", search.describe())
    study.set_metric_names(["validation error", "weights kept"])  # for optuna-dashboard
    _add_missing(study, search.points())
    return study


def work(study: optuna.Study, search: Search, objective: Pareto) -> None:
    """Take slots until every slot has a result. Any number of processes may do this at the same time."""
    import optuna
    from optuna.trial import TrialState

    def evaluated(trial: optuna.Trial) -> tuple[float, float]:
        slot = trial.user_attrs.get(_SLOT)
        try:
            if slot is None or _taken(study, slot, trial.number):
                raise _NoSlotError
            point = _point(trial, search)
            first, second = map(float, objective(trial, point))
            seal(trial, point, (first, second))
            return first, second
        except GossamerError as error:
            trial.set_user_attr("failure", str(error))
            raise
        except (_NoSlotError, KeyboardInterrupt):
            trial.set_user_attr(_RETURNED, True)
            raise

    silent: dict[int, float] = {}
    while True:
        _watch_silent(study, silent, search.heartbeat)
        optuna.storages.fail_stale_trials(study)
        _add_missing(study, search.points())
        if study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
            study.optimize(evaluated, n_trials=1, catch=(_NoSlotError, GossamerError))
        elif study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            time.sleep(min(1.0, search.heartbeat / 4))  # one of them may be killed
        else:
            return


def _watch_silent(study: optuna.Study, since: dict[int, float], heartbeat: int) -> None:
    """Give a heartbeat to trials that had none, so that they can become stale.

    A worker that is killed right after it has taken a trial has sent no heartbeat and has not chosen a point. Optuna
    would wait for such a trial for ever. If the worker is alive, its next heartbeat replaces this one.
    """
    from optuna.trial import TrialState

    now = time.monotonic()
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        if not trial.params and now - since.setdefault(trial._trial_id, now) > 2 * heartbeat:
            study._storage.record_heartbeat(trial._trial_id)  # type: ignore[attr-defined]
            since[trial._trial_id] = math.inf


def results(study: optuna.Study) -> list[Result]:
    """The result of each slot that has one, by slot."""
    found: dict[int, Result] = {}
    for trial in _slots(study):
        slot = trial.user_attrs[_SLOT]
        if _is_finished(checked(trial)) and slot not in found:
            values = None if trial.values is None else (trial.values[0], trial.values[1])
            figures = {name: value for name, value in trial.user_attrs.items() if name != _SLOT}
            found[slot] = Result(slot, trial.number, dict(trial.params), values, figures)
    return [found[slot] for slot in sorted(found)]


def states(study: optuna.Study) -> States:
    """Count the slots by what has become of them."""
    from optuna.trial import TrialState

    best: dict[int, TrialState] = {}
    order = [TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING, TrialState.WAITING, TrialState.FAIL]
    for trial in _slots(study):
        slot = trial.user_attrs[_SLOT]
        best[slot] = min(trial.state, best.get(slot, TrialState.FAIL), key=order.index)
    counts = [list(best.values()).count(state) for state in order]
    return States(finished=counts[0], pruned=counts[1], running=counts[2], waiting=counts[3], failed=counts[4])


class _NoSlotError(Exception):
    """Another worker was faster: there is nothing to evaluate."""


def _storage(url: str, heartbeat: int) -> optuna.storages.RDBStorage:
    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    if url.startswith("postgresql://"):
        url = url.replace("postgresql://", "postgresql+psycopg://", 1)
    reason = file_fault(url.removeprefix("sqlite:///")) if url.startswith("sqlite:///") else ""
    for attempt in range(0 if reason else 6):
        try:
            return optuna.storages.RDBStorage(
                url,
                heartbeat_interval=heartbeat,
                grace_period=2 * heartbeat,
                engine_kwargs={"connect_args": {"timeout": 60}} if url.startswith("sqlite") else None,
            )
        except ImportError:
            raise GossamerError(
                "`--storage postgresql://...` needs psycopg, which is not installed: "
                "`pip install 'gossamer[postgresql]'`."
            ) from None
        except (SQLAlchemyError, RuntimeError, ValueError) as error:
            reason = str(error).splitlines()[0]
            if "exists" not in str(error) and "unique" not in str(error):
                break
            time.sleep(0.2 * 2**attempt)  # another process is creating the tables
    raise GossamerError(
        f"The storage cannot be opened: {reason}. Give a path, or an address such as "
        "postgresql://user:password@host/database, of a database that exists."
    )


def _point(trial: optuna.Trial, search: Search) -> Point:
    return {
        name: trial.suggest_float(name, min(values), max(values), log=search.trials is not None)
        for name, values in search.values.items()
    }


def _add_missing(study: optuna.Study, points: Sequence[Point]) -> None:
    by_slot: dict[int, list[optuna.trial.FrozenTrial]] = {}
    for trial in _slots(study):
        by_slot.setdefault(trial.user_attrs[_SLOT], []).append(trial)
    for slot, point in enumerate(points):
        trials = by_slot.get(slot, [])
        if not any(map(_is_alive, trials)) and sum(map(_was_killed, trials)) < _ATTEMPTS:
            started = [dict(trial.params) for trial in trials if trial.params]
            study.enqueue_trial(started[-1] if started else point, user_attrs={_SLOT: slot})


def _is_alive(trial: optuna.trial.FrozenTrial) -> bool:
    """Whether a trial waits, runs, or has ended with a result or a reason."""
    return not trial.state.is_finished() or _is_finished(trial) or "failure" in trial.user_attrs


def _was_killed(trial: optuna.trial.FrozenTrial) -> bool:
    return not _is_alive(trial) and _RETURNED not in trial.user_attrs


def _is_finished(trial: optuna.trial.FrozenTrial) -> bool:
    from optuna.trial import TrialState

    return trial.state in (TrialState.COMPLETE, TrialState.PRUNED)


def _taken(study: optuna.Study, slot: int, number: int) -> bool:
    """Whether the slot has a result, or an older trial that is being evaluated."""
    from optuna.trial import TrialState

    others = [trial for trial in _slots(study) if trial.user_attrs[_SLOT] == slot and trial.number != number]
    return any(_is_finished(trial) for trial in others) or any(
        trial.state == TrialState.RUNNING and trial.number < number for trial in others
    )


def _slots(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    with readable(f"The study {study.study_name!r}"):
        return [trial for trial in study.get_trials(deepcopy=False) if _SLOT in trial.user_attrs]
