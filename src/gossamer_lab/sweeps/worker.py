"""Workers of a search: any number of processes, each of which may be killed or paused at any time.

A worker that is killed stops its heartbeat, and another one marks its trial as failed and evaluates the slot again. A
worker that was only paused finds its trial ended when it goes on. The slot has been given to another one, so the worker
drops what it has, notes that it is alive, and takes the next trial.
"""

from __future__ import annotations

import math
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from gossamer.errors import GossamerError
from gossamer_lab.sweeps.integrity import DamagedStorageError, seal
from gossamer_lab.sweeps.search import ALIVE, FAILURE, RETURNED, SLOT, Point, Search, add_missing, is_taken, slots

if TYPE_CHECKING:
    import optuna

__all__ = ["Pareto", "work"]

# The objective: minimises both numbers. It gets the trial for its number and for reporting, and the point.
Pareto = Callable[["optuna.Trial", Point], tuple[float, float]]

_SECONDS_BETWEEN_LOOKS = 0.25


def work(study: optuna.Study, search: Search, objective: Pareto) -> None:
    """Take slots until every slot has a result. Any number of processes may do this at the same time."""
    import optuna
    from optuna.trial import TrialState

    silent: dict[int, float] = {}
    while True:
        _watch_silent(study, silent, search.heartbeat)
        optuna.storages.fail_stale_trials(study)
        trials = slots(study)  # one look: a slot that is lost after it has a trial that is running in it
        unfinished = {trial.state for trial in trials if not trial.state.is_finished()}
        if add_missing(study, search.points(), trials) or TrialState.WAITING in unfinished:
            _evaluate_next(study, search, objective)
        elif unfinished:
            time.sleep(min(_SECONDS_BETWEEN_LOOKS, search.heartbeat / 4))  # one of them may be killed
        else:
            return


def _evaluate_next(study: optuna.Study, search: Search, objective: Pareto) -> None:
    """Take a trial and record what becomes of it."""
    from optuna.exceptions import UpdateFinishedTrialError
    from optuna.trial import TrialState

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Heartbeat of storage")  # sent below
        trial = study.ask()
    try:
        with _heartbeats(study, trial, search.heartbeat):
            state, values = _outcome(study, trial, search, objective)
        ours = study.tell(trial, values, state, skip_if_finished=True).state == state
    except UpdateFinishedTrialError:
        ours = False
    except BaseException as error:
        with suppress(UpdateFinishedTrialError):
            if isinstance(error, KeyboardInterrupt):
                trial.set_user_attr(RETURNED, True)
            study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)
        raise
    if not ours:
        study.set_user_attr(f"{ALIVE}{trial.number}", True)


def _outcome(
    study: optuna.Study, trial: optuna.Trial, search: Search, objective: Pareto
) -> tuple[optuna.trial.TrialState, tuple[float, float] | None]:
    """How a trial ends. What the objective refuses is a failure of the slot, a damaged storage is not."""
    from optuna.exceptions import TrialPruned
    from optuna.trial import TrialState

    slot = trial.user_attrs.get(SLOT)
    if slot is None or is_taken(study, slot, trial.number):  # another worker was faster
        trial.set_user_attr(RETURNED, True)
        return TrialState.FAIL, None
    study.sampler = search.sampler(slot)
    point = _point(trial, search)
    try:
        first, second = map(float, objective(trial, point))
        if not (math.isfinite(first) and math.isfinite(second)):
            raise GossamerError(f"The objective is {first}, {second}.")
    except TrialPruned:
        return TrialState.PRUNED, None
    except DamagedStorageError:
        raise
    except GossamerError as error:
        trial.set_user_attr(FAILURE, str(error))
        return TrialState.FAIL, None
    seal(trial, point, (first, second))
    return TrialState.COMPLETE, (first, second)


def _point(trial: optuna.Trial, search: Search) -> Point:
    return {
        name: trial.suggest_float(name, min(values), max(values), log=search.trials is not None)
        for name, values in search.values.items()
    }


@contextmanager
def _heartbeats(study: optuna.Study, trial: optuna.Trial, seconds: int) -> Iterator[None]:
    """Send heartbeats from another thread. One that cannot be sent is left out."""
    from optuna.exceptions import StorageInternalError

    ended = threading.Event()

    def send() -> None:
        while not ended.wait(seconds):
            with suppress(StorageInternalError):
                _beat(study, trial._trial_id)
        study._storage.remove_session()

    _beat(study, trial._trial_id)
    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _beat(study: optuna.Study, trial_id: int) -> None:
    study._storage.record_heartbeat(trial_id)  # type: ignore[attr-defined]


def _watch_silent(study: optuna.Study, since: dict[int, float], heartbeat: int) -> None:
    """Give a heartbeat to trials that had none, so that they can become stale.

    A worker that is killed right after it has taken a trial has sent no heartbeat and has not chosen a point. Optuna
    would wait for such a trial for ever. If the worker is alive, its next heartbeat replaces this one.
    """
    from optuna.trial import TrialState

    now = time.monotonic()
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        if not trial.params and now - since.setdefault(trial._trial_id, now) > 2 * heartbeat:
            _beat(study, trial._trial_id)
            since[trial._trial_id] = math.inf
