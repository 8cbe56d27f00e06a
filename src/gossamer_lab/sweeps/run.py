"""Bringing studies to their budgets with several processes.

This process alone writes the storage: it hands points to the workers and writes down what comes back. So no point is
handed out twice, and when anything is killed the storage at most names a trial as running that is not.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from gossamer.errors import GossamerError
from gossamer_lab.sweeps.attempt import Crash, Failure, Outcome, attempt
from gossamer_lab.sweeps.processes import Tell, work_off
from gossamer_lab.sweeps.storage import Record, open_storage, sole_writer
from gossamer_lab.sweeps.study import Objective, Study
from gossamer_lab.sweeps.trials import Trial

if TYPE_CHECKING:
    import optuna

__all__ = ["run_studies"]


def run_studies(
    studies: Sequence[tuple[Study, Objective]],
    storage: Path,
    *,
    workers: int,
    known: Iterable[Trial] = (),
    on_trial: Callable[[Trial], None] | None = None,
) -> list[Trial]:
    """Bring each study to its budget; trials already finished in ``storage``, or ``known``, count.

    It may be stopped at any moment, by Ctrl-C or by killing any of its processes, and goes on when called again: a
    point that was being tried is tried again, a finished one never. As always where processes are spawned, a script
    calls this under ``if __name__ == "__main__"``.

    Args:
        studies: The studies, begun in this order, each with what it minimises.
        storage: The SQLite file; created with its folder where it is missing.
        workers: The most processes that try points at the same time, each with one thread.
        known: Finished trials, of any studies; written into the storage where it does not have them.
        on_trial: Called in this process with each trial that finishes now.

    Returns:
        The finished trials, study by study in the order of their numbers, without points that have left the grid.
        A point for which the objective had no value is among them, with its ``failure`` and the value infinity.

    Raises:
        GossamerError: When the arguments or the storage cannot be used, an objective raised anything but a
            ``NoValueError``, or a worker was killed.
    """
    _check(studies, storage, workers)
    objectives = [objective for _, objective in studies]
    _require_pickles(objectives)
    with sole_writer(storage), open_storage(storage) as opened:
        records = [Record(opened, study) for study, _ in studies]
        for trial in known:
            for record in records:
                if record.plan.name == trial.study:
                    record.remember(trial)
        sweep = _Sweep(records, on_trial)
        sweep.run(objectives, workers)
        return [trial for record in records for trial in record.finished()]


@dataclass(frozen=True)
class _Task:
    """A point that is to be tried, on the objective with this index."""

    number: int
    objective: int
    point: dict[str, float]


class _Sweep:
    """Which points are being tried, and what is written down of those that were."""

    def __init__(self, records: Sequence[Record], on_trial: Callable[[Trial], None] | None) -> None:
        self._records = records
        self._on_trial = on_trial
        self._begun = count()
        self._trying: dict[int, tuple[int, optuna.Trial]] = {}

    def run(self, objectives: Sequence[Objective], workers: int) -> None:
        for task, outcome in work_off(_Trying(objectives), self._next, workers):
            self._write_down(*self._trying.pop(task.number), outcome)

    def _next(self) -> _Task | None:
        """A point that nobody tries, of the first study that has one."""
        for index, record in enumerate(self._records):
            tried = [trial.params for where, trial in self._trying.values() if where == index]
            for point in record.next_points():
                if point not in tried:
                    task = _Task(next(self._begun), index, point)
                    self._trying[task.number] = (index, record.begin(point))
                    return task
        return None

    def _write_down(self, index: int, trial: optuna.Trial, outcome: Outcome) -> None:
        record = self._records[index]
        if isinstance(outcome, Crash):
            raise GossamerError(
                f"The objective of study {record.plan.name!r} raised at {trial.params}. "
                f"Mend it and start the sweep again; finished trials are kept.\n{outcome.text}"
            )
        if isinstance(outcome, Failure):
            finished = record.fail(trial, outcome.reason, outcome.seconds)
        else:
            finished = record.complete(trial, outcome.value, outcome.figures, outcome.seconds)
        if self._on_trial is not None:
            self._on_trial(finished)


@dataclass(frozen=True)
class _Trying:
    """What a worker does with a task."""

    objectives: Sequence[Objective]

    def __call__(self, task: _Task, tell: Tell) -> Outcome:
        return attempt(self.objectives[task.objective], task.point)


def _check(studies: Sequence[tuple[Study, Objective]], storage: Path, workers: int) -> None:
    names = [study.name for study, _ in studies]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise GossamerError(f"`studies` must have names of their own; received several of {repeated}.")
    if not isinstance(workers, int) or isinstance(workers, bool) or workers < 1:
        raise GossamerError(f"`workers` must be a whole number, at least 1; received {workers!r}.")
    if storage.is_dir():
        raise GossamerError(f"`storage` must be a file; received {str(storage)!r}, which is a folder.")


def _require_pickles(objectives: Sequence[Objective]) -> None:
    try:
        pickle.dumps(objectives)
    except Exception as error:  # pickle raises whatever the object does
        raise GossamerError(
            f"`studies` must have objectives that can be pickled, such as functions of a module; received one that "
            f"cannot: {error}."
        ) from None
