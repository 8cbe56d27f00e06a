"""Searches that any number of processes and machines work on: an Optuna study whose trials are slots of a queue.

A search has a fixed number of slots. A slot of a grid has its point; a slot of a Pareto search gets it from the sampler
when it is started. The study holds everything, so all processes are equal, and each may be killed at any time:

    started      a worker takes a waiting trial. The database gives each trial to one worker only.
    killed       its heartbeat stops, and another worker marks the trial as failed (see `worker`).
    lost         a slot without a waiting, running or finished trial is added again, at the same point. Every worker
                 looks for such slots before it takes a trial.

If two workers add the same slot, the one trial is evaluated and the other returned. Every slot has one result.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any

from gossamer.errors import GossamerError
from gossamer_lab.sweeps.database import open_database
from gossamer_lab.sweeps.integrity import checked, readable
from gossamer_lab.sweeps.storage import require_optuna

if TYPE_CHECKING:
    import optuna

__all__ = [
    "ALIVE",
    "FAILURE",
    "RETURNED",
    "SLOT",
    "Point",
    "Result",
    "Search",
    "States",
    "add_missing",
    "failures",
    "is_taken",
    "open_search",
    "results",
    "slots",
    "states",
]

# Attributes of a trial: its slot; why it has no result; whether its worker has given it back.
SLOT, FAILURE, RETURNED = "slot", "failure", "returned"
# Attribute of the study, followed by the number of a trial: the trial was marked as failed, and its worker is alive.
ALIVE = "alive "

_HEARTBEAT = 15  # seconds
_ATTEMPTS = 4  # of a slot whose trials kill their workers

Point = dict[str, float]
_Slots = dict[int, list["optuna.trial.FrozenTrial"]]


@dataclass(frozen=True)
class Search:
    """What is searched: the points of a grid, or a number of points that a sampler chooses from ranges.

    Attributes:
        name: Name of the study.
        values: The values of each parameter; for a Pareto search its smallest and its largest, on a logarithmic scale.
        trials: Number of trials of a Pareto search; None for a grid.
        seed: Seed of the sampler.
        settings: What else determines a result, as plain data.
        heartbeat: Seconds between two signs of life of a running trial; after two of them it counts as killed.
    """

    name: str
    values: Mapping[str, Sequence[float]]
    trials: int | None = None
    seed: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    heartbeat: int = _HEARTBEAT

    def points(self) -> list[Point]:
        """The point of each slot; empty where the sampler chooses."""
        if self.trials is not None:
            return [{} for _ in range(self.trials)]
        return [dict(zip(self.values, point, strict=True)) for point in product(*self.values.values())]

    def describe(self) -> dict[str, Any]:
        """What has to be the same in all processes, as plain data."""
        values = {name: list(map(float, each)) for name, each in self.values.items()}
        return {"values": values, "trials": self.trials, "seed": self.seed, **self.settings}

    def sampler(self, slot: int) -> optuna.samplers.BaseSampler:
        """The sampler of a slot. Each has its own random numbers, or all workers would draw the same points."""
        import optuna

        return optuna.samplers.TPESampler(seed=(1_000_003 * self.seed + slot) % 2**32, constant_liar=True)


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
    storage = open_database(url, search.heartbeat)
    try:
        with readable(f"The study {search.name!r}"):
            study = _joined(search, storage)
        yield study
    finally:
        storage.remove_session()
        storage.engine.dispose()


def _joined(search: Search, storage: optuna.storages.RDBStorage) -> optuna.Study:
    import optuna

    study = optuna.create_study(
        storage=storage,
        study_name=search.name,
        directions=["minimize", "minimize"],
        sampler=search.sampler(0),  # of the first slot; see `worker`
        load_if_exists=True,
    )
    known = study.user_attrs.get("search")
    if known is not None and known != search.describe():
        raise GossamerError(
            f"The storage has a study {search.name!r} of other trainings: {_differing(known, search.describe())}. Give "
            "the same options, or another `--name`."
        )
    study.set_user_attr("search", search.describe())
    study.set_metric_names(["validation error", "weights kept"])  # for optuna-dashboard
    add_missing(study, search.points(), slots(study))
    return study


def _differing(known: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    names = [name for name in (*given, *(set(known) - set(given))) if known.get(name) != given.get(name)]
    return "; ".join(f"{name} was {known.get(name)!r}, and is {given.get(name)!r} now" for name in names)


def slots(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    """All trials that belong to a slot, by number."""
    with readable(f"The study {study.study_name!r}"):
        return [trial for trial in study.get_trials(deepcopy=False) if SLOT in trial.user_attrs]


def results(study: optuna.Study) -> list[Result]:
    """The result of each slot that has one, by slot."""
    found: dict[int, Result] = {}
    for trial in slots(study):
        slot = trial.user_attrs[SLOT]
        if _is_finished(trial) and slot not in found:  # others may have been declared dead on their last lines
            checked(trial)
            values = None if trial.values is None else (trial.values[0], trial.values[1])
            figures = {name: value for name, value in trial.user_attrs.items() if name != SLOT}
            found[slot] = Result(slot, trial.number, dict(trial.params), values, figures)
    return [found[slot] for slot in sorted(found)]


def failures(study: optuna.Study) -> list[str]:
    """Why slots have no result, where that is known."""
    by_slot = _by_slot(slots(study))
    unfinished = [trial for trials in by_slot.values() if not any(map(_is_finished, trials)) for trial in trials]
    return [trial.user_attrs[FAILURE] for trial in unfinished if FAILURE in trial.user_attrs]


def states(study: optuna.Study) -> States:
    """Count the slots by what has become of them. A slot that is lost waits to be added again."""
    from optuna.trial import TrialState

    order = [TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING, TrialState.WAITING, TrialState.FAIL]
    by_slot = _by_slot(slots(study))
    lost = _lost(study, by_slot)
    found = [
        TrialState.WAITING if slot in lost else min((trial.state for trial in trials), key=order.index)
        for slot, trials in by_slot.items()
    ]
    counts = [found.count(state) for state in order]
    return States(finished=counts[0], pruned=counts[1], running=counts[2], waiting=counts[3], failed=counts[4])


def add_missing(study: optuna.Study, points: Sequence[Point], trials: Sequence[optuna.trial.FrozenTrial]) -> bool:
    """Add the slots that have no trial yet, or have lost theirs. Return whether there were any."""
    by_slot = _by_slot(trials)
    lost = _lost(study, by_slot)
    missing = [slot for slot in range(len(points)) if slot not in by_slot or slot in lost]
    for slot in missing:
        started = [dict(trial.params) for trial in by_slot.get(slot, ()) if trial.params]
        study.enqueue_trial(started[-1] if started else points[slot], user_attrs={SLOT: slot})
    return bool(missing)


def is_taken(study: optuna.Study, slot: int, number: int) -> bool:
    """Whether the slot has a result, or an older trial that is being evaluated."""
    from optuna.trial import TrialState

    others = [trial for trial in slots(study) if trial.user_attrs[SLOT] == slot and trial.number != number]
    return any(_is_finished(trial) for trial in others) or any(
        trial.state == TrialState.RUNNING and trial.number < number for trial in others
    )


def _by_slot(trials: Sequence[optuna.trial.FrozenTrial]) -> _Slots:
    found: _Slots = {}
    for trial in trials:
        found.setdefault(trial.user_attrs[SLOT], []).append(trial)
    return found


def _lost(study: optuna.Study, by_slot: _Slots) -> set[int]:
    """The slots without a trial that waits, runs or has ended, except those that have killed their workers often."""
    lost = {slot: trials for slot, trials in by_slot.items() if not any(map(_is_alive, trials))}
    alive = study.user_attrs if lost else {}

    def killed(trial: optuna.trial.FrozenTrial) -> bool:
        return RETURNED not in trial.user_attrs and f"{ALIVE}{trial.number}" not in alive

    return {slot for slot, trials in lost.items() if sum(map(killed, trials)) < _ATTEMPTS}


def _is_alive(trial: optuna.trial.FrozenTrial) -> bool:
    """Whether a trial waits, runs, or has ended with a result or a reason."""
    return not trial.state.is_finished() or _is_finished(trial) or FAILURE in trial.user_attrs


def _is_finished(trial: optuna.trial.FrozenTrial) -> bool:
    from optuna.trial import TrialState

    return trial.state in (TrialState.COMPLETE, TrialState.PRUNED)
