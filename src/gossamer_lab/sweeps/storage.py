"""The storage of a sweep: an SQLite file of Optuna studies with a single writer."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gossamer.errors import GossamerError
from gossamer.files import staged
from gossamer_lab.sweeps.address import Address, as_template
from gossamer_lab.sweeps.integrity import checked, file_fault, readable, seal
from gossamer_lab.sweeps.study import Study
from gossamer_lab.sweeps.trials import Trial

if TYPE_CHECKING:
    import optuna

__all__ = ["StudyRecord", "exclusive_writer", "finished_trials", "open_storage", "require_optuna"]

# Timeout for a concurrent access to the file.
_BUSY_SECONDS = 60


def finished_trials(storage: Path, study: str) -> list[Trial]:
    """Return the finished trials of a study by number; empty if there is no such file or study.

    Raises:
        GossamerError: If the file is not an Optuna storage, or Optuna is not installed.
    """
    require_optuna()
    if not storage.exists():
        return []
    with open_storage(storage) as opened:
        import optuna

        with readable(str(storage)):
            if study not in optuna.get_all_study_names(opened):
                return []
            return _trials(optuna.load_study(study_name=study, storage=opened))


@contextmanager
def exclusive_writer(storage: Path) -> Iterator[None]:
    """Lock the storage for writing, creating it if necessary. The lock ends with the process, even if it is killed.

    Raises:
        GossamerError: If another process holds the lock, or Optuna is not installed.
    """
    require_optuna()
    storage.parent.mkdir(parents=True, exist_ok=True)
    # An SQLite lock on a separate file: every system releases it with the process, and it does not block readers of the
    # storage.
    lock = sqlite3.connect(storage.with_name(storage.name + ".lock"), timeout=0, isolation_level=None)
    with closing(lock):
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            raise GossamerError(
                f"{storage} cannot be locked ({error}): most likely another sweep is running on it. "
                "Wait for it to finish, or choose another `storage`."
            ) from None
        if not storage.exists():
            _create(storage)
        yield


@contextmanager
def open_storage(path: Path) -> Iterator[optuna.storages.RDBStorage]:
    """Open an existing storage."""
    if fault := file_fault(path):
        raise _unusable(path, fault)
    try:
        with closing(sqlite3.connect(path, timeout=_BUSY_SECONDS)) as connection:
            connection.execute("SELECT * FROM version_info")  # a table of every Optuna storage
        with readable(str(path)):
            storage = _connect(path, skip_table_creation=True)
    except (sqlite3.Error, RuntimeError) as error:  # RuntimeError: tables of another Optuna version
        raise _unusable(path, error) from None
    try:
        yield storage
    finally:
        storage.remove_session()
        storage.engine.dispose()


class StudyRecord:
    """The trials of one study in an open storage.

    Only the process with the writer lock creates one, so unfinished trials in the storage were left by a process that
    was killed. They are marked as failed.
    """

    def __init__(self, storage: optuna.storages.RDBStorage, study: Study) -> None:
        import optuna

        self.plan = study
        with readable(f"The study {study.name!r}"):
            self._study = optuna.create_study(
                study_name=study.name,
                storage=storage,
                sampler=optuna.samplers.RandomSampler(seed=study.seed),  # unused: every trial is given its point
                load_if_exists=True,
            )
        self._distributions: dict[str, optuna.distributions.BaseDistribution] = {
            name: optuna.distributions.FloatDistribution(min(values), max(values))
            for name, values in study.grid.items()
        }
        self._fail_unfinished()

    def _fail_unfinished(self) -> None:
        from optuna.trial import TrialState

        while self._study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
            self._study.ask()
        for trial in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            self._study.tell(trial.number, state=TrialState.FAIL)

    def finished(self) -> list[Trial]:
        """Return the finished trials whose points are in the grid, by number."""
        grid = {_key(point) for point in self.plan.points()}
        return [trial for trial in _trials(self._study) if _key(trial.parameters) in grid]

    def next_points(self) -> list[dict[str, float]]:
        """Return the points without a finished trial."""
        return self.plan.next_points(self.finished())

    def add(self, trial: Trial) -> None:
        """Add a finished trial of another storage, unless its point has one."""
        from optuna.trial import TrialState, create_trial

        if _key(trial.parameters) in {_key(known.parameters) for known in self.finished()}:
            return
        ended = trial.failure is None
        self._study.add_trial(
            create_trial(
                state=TrialState.COMPLETE if ended else TrialState.FAIL,
                value=trial.value if ended else None,
                params=trial.parameters,
                distributions=self._distributions,
                user_attrs={
                    "seconds": trial.seconds,
                    **({"figures": trial.figures} if ended else {"failure": trial.failure}),
                },
            )
        )

    def start(self, point: dict[str, float]) -> optuna.Trial:
        """Record that a point is being evaluated."""
        self._study.enqueue_trial(point)
        return self._study.ask(self._distributions)

    def complete(self, trial: optuna.Trial, value: float, figures: dict[str, float], seconds: float) -> Trial:
        """Record the value of a trial."""
        trial.set_user_attr("figures", figures)
        trial.set_user_attr("seconds", seconds)
        seal(trial, trial.params, [value])
        return _trial(self.plan.name, self._study.tell(trial, value))

    def fail(self, trial: optuna.Trial, reason: str, seconds: float) -> Trial:
        """Record that a trial has no value, and why."""
        from optuna.trial import TrialState

        trial.set_user_attr("seconds", seconds)
        # Last: a trial with a reason counts as finished, even if the process is killed before the next line.
        trial.set_user_attr("failure", reason)
        return _trial(self.plan.name, self._study.tell(trial, state=TrialState.FAIL))


def _trials(study: optuna.Study) -> list[Trial]:
    from optuna.trial import TrialState

    # A failed trial without a reason was interrupted; its point is evaluated again under another number.
    return [
        _trial(study.study_name, trial)
        for trial in study.get_trials(deepcopy=False)
        if trial.state == TrialState.COMPLETE or (trial.state == TrialState.FAIL and "failure" in trial.user_attrs)
    ]


def _trial(study: str, trial: optuna.trial.FrozenTrial) -> Trial:
    checked(trial)
    failure = trial.user_attrs.get("failure")
    return Trial(
        study=study,
        number=trial.number,
        parameters=dict(trial.params),
        value=math.inf if trial.value is None else trial.value,
        figures=dict(trial.user_attrs.get("figures", {})),
        seconds=trial.user_attrs.get("seconds", 0.0),
        failure=failure,
    )


def _key(point: dict[str, float]) -> frozenset[tuple[str, float]]:
    return frozenset(point.items())


def _create(path: Path) -> None:
    """Create the tables in a temporary file and move it into place, so that a storage always has all of them."""
    with staged(path) as temporary:
        storage = _connect(temporary, skip_table_creation=False)
        storage.remove_session()
        storage.engine.dispose()


def _connect(path: Path, *, skip_table_creation: bool) -> optuna.storages.RDBStorage:
    import optuna

    return optuna.storages.RDBStorage(
        as_template(Address.of_file(path)),
        engine_kwargs={"connect_args": {"timeout": _BUSY_SECONDS}},
        skip_table_creation=skip_table_creation,
    )


def _unusable(path: Path, reason: object) -> GossamerError:
    return GossamerError(
        f"{path} is not a usable Optuna storage: {str(reason).rstrip('.')}. Restore a copy of it, or choose "
        "another `storage`."
    )


def require_optuna() -> None:
    """Raise `GossamerError` if Optuna is not installed."""
    try:
        import optuna
    except ImportError:
        raise GossamerError("Studies need Optuna, which is not installed: `pip install 'gossamer[lab]'`.") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
