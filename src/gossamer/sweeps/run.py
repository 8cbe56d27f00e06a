"""Bringing studies to their budgets with several processes.

This process alone writes the storage: it hands points to the workers and writes down what comes back. So no point is
handed out twice, and when anything is killed the storage at most names a trial as running that is not.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING

from gossamer.errors import GossamerError
from gossamer.sweeps.storage import Record, open_storage, sole_writer
from gossamer.sweeps.study import Objective, Study
from gossamer.sweeps.trials import Trial
from gossamer.sweeps.worker import Crash, Failure, Worker

if TYPE_CHECKING:
    import optuna

__all__ = ["run_studies"]


def run_studies(
    studies: Sequence[tuple[Study, Objective]],
    storage: Path,
    *,
    workers: int,
    on_trial: Callable[[Trial], None] | None = None,
) -> list[Trial]:
    """Bring each study to its budget; trials already finished in ``storage`` count.

    It may be stopped at any moment, by Ctrl-C or by killing any of its processes, and goes on when called again: a
    point that was being tried is tried again, a finished one never. As always where processes are spawned, a script
    calls this under ``if __name__ == "__main__"``.

    Args:
        studies: The studies, begun in this order, each with what it minimises.
        storage: The SQLite file; created with its folder where it is missing.
        workers: The most processes that try points at the same time, each with one thread.
        on_trial: Called in this process with each trial that finishes now.

    Returns:
        The finished trials, study by study in the order of their numbers, without points that have left the grid.
        A point for which the objective had no value is among them, with its ``failure`` and the value infinity.

    Raises:
        GossamerError: When the arguments or the storage cannot be used, an objective raised anything but a
            ``NoValueError``, or a worker was killed.
    """
    _check(studies, storage, workers)
    objectives = _pickled([objective for _, objective in studies])
    with sole_writer(storage), open_storage(storage) as opened:
        records = [Record(opened, study) for study, _ in studies]
        sweep = _Sweep(records, on_trial)
        sweep.run(objectives, workers)
        return [trial for record in records for trial in record.finished()]


class _Sweep:
    """Which worker tries which point, and which workers wait for one."""

    def __init__(self, records: Sequence[Record], on_trial: Callable[[Trial], None] | None) -> None:
        self._records = records
        self._on_trial = on_trial
        self._busy: dict[Connection, tuple[Worker, int, optuna.Trial]] = {}
        self._idle: list[Worker] = []

    def run(self, objectives: bytes, workers: int) -> None:
        crew: list[Worker] = []
        try:
            while True:
                while (task := self._next()) and (self._idle or len(crew) < workers):
                    if not self._idle:
                        crew.append(Worker(objectives))
                        crew[-1].start()
                        self._idle.append(crew[-1])
                    self._hand_out(self._idle.pop(), *task)
                if not self._busy:
                    break
                ready = wait(list(self._busy))
                for connection in [connection for connection in self._busy if connection in ready]:
                    self._take_back(connection)
            for worker in crew:
                worker.dismiss()
        except BaseException:  # Ctrl-C among them
            for worker in crew:
                worker.kill()
            raise
        finally:
            for worker in crew:
                worker.join()

    def _next(self) -> tuple[int, dict[str, float]] | None:
        """A point that nobody tries, of the first study that has one."""
        for index, record in enumerate(self._records):
            tried = [trial.params for _, where, trial in self._busy.values() if where == index]
            for point in record.next_points():
                if point not in tried:
                    return index, point
        return None

    def _hand_out(self, worker: Worker, index: int, point: dict[str, float]) -> None:
        trial = self._records[index].begin(point)
        self._busy[worker.connection] = (worker, index, trial)
        worker.send(index, point)

    def _take_back(self, connection: Connection) -> None:
        worker, index, trial = self._busy.pop(connection)
        record = self._records[index]
        outcome = worker.receive()
        if isinstance(outcome, Crash):
            raise GossamerError(
                f"The objective of study {record.plan.name!r} raised at {trial.params}. "
                f"Mend it and start the sweep again; finished trials are kept.\n{outcome.text}"
            )
        if isinstance(outcome, Failure):
            finished = record.fail(trial, outcome.reason, outcome.seconds)
        else:
            finished = record.complete(trial, outcome.value, outcome.figures, outcome.seconds)
        self._idle.append(worker)
        if self._on_trial is not None:
            self._on_trial(finished)


def _check(studies: Sequence[tuple[Study, Objective]], storage: Path, workers: int) -> None:
    names = [study.name for study, _ in studies]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise GossamerError(f"`studies` must have names of their own; received several of {repeated}.")
    if not isinstance(workers, int) or isinstance(workers, bool) or workers < 1:
        raise GossamerError(f"`workers` must be a whole number, at least 1; received {workers!r}.")
    if storage.is_dir():
        raise GossamerError(f"`storage` must be a file; received {str(storage)!r}, which is a folder.")


def _pickled(objectives: Sequence[Objective]) -> bytes:
    try:
        return pickle.dumps(objectives)
    except Exception as error:  # pickle raises whatever the object does
        raise GossamerError(
            f"`studies` must have objectives that can be pickled, such as functions of a module; received one that "
            f"cannot: {error}."
        ) from None
