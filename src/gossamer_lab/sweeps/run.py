"""Running studies with several worker processes.

Only this process writes the storage: it hands out points and records the results. So no point is evaluated twice, and
a kill leaves at most trials that are marked as running.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from gossamer.errors import GossamerError
from gossamer_lab.sweeps.evaluation import Crash, Evaluation, Failure, evaluate
from gossamer_lab.sweeps.processes import OnProgress, run_tasks
from gossamer_lab.sweeps.storage import StudyRecord, exclusive_writer, open_storage
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
    """Run each study until its budget is used; finished trials in `storage` and in `known` count.

    It may be stopped at any time, by Ctrl-C or by killing any of its processes, and continues when called again:
    unfinished points are evaluated again, finished ones never. Processes are spawned, so a script must call this under
    `if __name__ == "__main__"`.

    Args:
        studies: The studies with their objectives, started in this order.
        storage: SQLite file; created if it does not exist.
        workers: Maximum number of worker processes, each with one thread.
        known: Finished trials of any study; added to the storage where it lacks them.
        on_trial: Called in this process with each trial that finishes.

    Returns:
        The finished trials by study and number, without points outside the grid. A point without a value is included,
        with its `failure` and the value infinity.

    Raises:
        GossamerError: If an argument or the storage is invalid, an objective raised anything but `NoValueError`, or a
            worker was killed.
    """
    _check(studies, storage, workers)
    objectives = [objective for _, objective in studies]
    _require_pickles(objectives)
    with exclusive_writer(storage), open_storage(storage) as opened:
        records = [StudyRecord(opened, study) for study, _ in studies]
        for trial in known:
            for record in records:
                if record.plan.name == trial.study:
                    record.add(trial)
        sweep = _Sweep(records, on_trial)
        sweep.run(objectives, workers)
        return [trial for record in records for trial in record.finished()]


@dataclass(frozen=True)
class _Task:
    """A point to evaluate with the objective of this index."""

    number: int
    objective: int
    point: dict[str, float]


class _Sweep:
    """Hands out points and records the evaluations."""

    def __init__(self, records: Sequence[StudyRecord], on_trial: Callable[[Trial], None] | None) -> None:
        self._records = records
        self._on_trial = on_trial
        self._numbers = count()
        self._running: dict[int, tuple[int, optuna.Trial]] = {}

    def run(self, objectives: Sequence[Objective], workers: int) -> None:
        for task, evaluation in run_tasks(_Evaluator(objectives), self._next, workers):
            self._record(*self._running.pop(task.number), evaluation)

    def _next(self) -> _Task | None:
        """Return a point that is not being evaluated, of the first study that has one."""
        for index, record in enumerate(self._records):
            running = [trial.params for where, trial in self._running.values() if where == index]
            for point in record.next_points():
                if point not in running:
                    task = _Task(next(self._numbers), index, point)
                    self._running[task.number] = (index, record.start(point))
                    return task
        return None

    def _record(self, index: int, trial: optuna.Trial, evaluation: Evaluation) -> None:
        record = self._records[index]
        if isinstance(evaluation, Crash):
            raise GossamerError(
                f"The objective of study {record.plan.name!r} raised at {trial.params}. "
                f"Fix it and run the sweep again; finished trials are kept.\n{evaluation.text}"
            )
        if isinstance(evaluation, Failure):
            finished = record.fail(trial, evaluation.reason, evaluation.seconds)
        else:
            finished = record.complete(trial, evaluation.value, evaluation.figures, evaluation.seconds)
        if self._on_trial is not None:
            self._on_trial(finished)


@dataclass(frozen=True)
class _Evaluator:
    """The work of a worker."""

    objectives: Sequence[Objective]

    def __call__(self, task: _Task, on_progress: OnProgress) -> Evaluation:
        return evaluate(self.objectives[task.objective], task.point)


def _check(studies: Sequence[tuple[Study, Objective]], storage: Path, workers: int) -> None:
    names = [study.name for study, _ in studies]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise GossamerError(f"`studies` must have distinct names; received several of {repeated}.")
    if not isinstance(workers, int) or isinstance(workers, bool) or workers < 1:
        raise GossamerError(f"`workers` must be an integer, at least 1; received {workers!r}.")
    if storage.is_dir():
        raise GossamerError(f"`storage` must be a file; received {str(storage)!r}, which is a folder.")


def _require_pickles(objectives: Sequence[Objective]) -> None:
    try:
        pickle.dumps(objectives)
    except Exception as error:  # pickle raises whatever the object does
        raise GossamerError(
            f"`studies` must have objectives that can be pickled, such as functions of a module; received one that "
            f"cannot be: {error}."
        ) from None
