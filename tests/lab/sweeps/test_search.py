"""Searches by several processes on one database: no slot is lost, none is counted twice."""

import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import optuna
import pytest
from optuna import TrialPruned
from optuna.exceptions import StorageInternalError
from optuna.trial import TrialState, create_trial
from sqlalchemy import event
from sqlalchemy.exc import IntegrityError, OperationalError

from gossamer.errors import GossamerError
from gossamer_lab.sweeps import training_trials
from gossamer_lab.sweeps.integrity import DamagedStorageError, seal
from gossamer_lab.sweeps.pareto import pareto_figure, pareto_front
from gossamer_lab.sweeps.search import Result, Search, States, failures, open_search, results, states
from gossamer_lab.sweeps.training_trials import is_poor
from gossamer_lab.sweeps.worker import work

WORKER = Path(__file__).parent / "search_worker.py"
SEARCH = Search("grid", {"x": [float(x) for x in range(6)], "y": [1.0, 2.0]}, heartbeat=1)  # that of the workers


def start(url, folder, role):
    return subprocess.Popen([sys.executable, WORKER, url, folder, role], stderr=subprocess.PIPE, text=True)


def test_four_workers_on_postgresql_of_which_one_is_killed(postgresql, tmp_path):
    victim = start(postgresql, tmp_path, "victim")
    others = [start(postgresql, tmp_path, "other") for _ in range(3)]
    try:
        while not (tmp_path / "blocked").exists():
            assert victim.poll() is None, victim.communicate()
            time.sleep(0.05)
        victim.send_signal(signal.SIGKILL)
        for process in others:
            assert process.wait(timeout=120) == 0, process.communicate()
    finally:
        for process in (victim, *others):
            process.kill()
            process.communicate()
    with open_search(SEARCH, postgresql) as study:
        found, trials, ended = results(study), study.get_trials(), states(study)
    assert [result.slot for result in found] == list(range(12))
    assert sorted(result.values for result in found) == sorted((x, y) for x in map(float, range(6)) for y in (1.0, 2.0))
    completed = Counter(trial.user_attrs["slot"] for trial in trials if trial.state.name == "COMPLETE")
    assert completed == Counter(range(12))  # each once
    started = Counter((tmp_path / "started").read_text().splitlines())
    assert sorted(started.values()) == [1] * 11 + [2]  # the point of the victim was evaluated again, no other
    assert ended.done


def worked(search, url, objective):
    """Work on a search; return its results, trials and states."""
    with open_search(search, url) as study:
        work(study, search, objective)
        return results(study), study.get_trials(), states(study)


def grid(tmp_path, **options):
    search = Search("one", {"x": [1.0, 2.0, 3.0]}, **options)
    return search, f"sqlite:///{tmp_path / 'sweep.db'}"


def test_an_interrupted_search_goes_on(tmp_path):
    search, url = grid(tmp_path)
    calls = []

    def objective(trial, point):
        calls.append(point["x"])
        if len(calls) == 2:
            raise KeyboardInterrupt
        return point["x"], 0.0

    with pytest.raises(KeyboardInterrupt):
        worked(search, url, objective)
    found, _, _ = worked(search, url, objective)
    assert [result.values for result in found] == [(1.0, 0.0), (2.0, 0.0), (3.0, 0.0)]
    assert len(calls) == 4


def test_a_failure_is_not_tried_again(tmp_path):
    search, url = grid(tmp_path)

    def objective(trial, point):
        if point["x"] == 2.0:
            raise GossamerError("diverged")
        return point["x"], 0.0

    _, trials, ended = worked(search, url, objective)
    assert (ended.finished, ended.failed) == (2, 1)
    assert [trial.user_attrs["failure"] for trial in trials if "failure" in trial.user_attrs] == ["diverged"]


@pytest.mark.filterwarnings("ignore:Heartbeat of storage")
def test_a_slot_that_kills_its_workers_is_given_up(tmp_path):
    search, url = grid(tmp_path)
    with open_search(search, url) as study:
        study.ask()  # the first slot
        study.tell(0, state=TrialState.FAIL)
        for _ in range(3):
            study.add_trial(create_trial(state=TrialState.FAIL, user_attrs={"slot": 0}))
    found, _, ended = worked(search, url, lambda trial, point: (point["x"], 0.0))
    assert [result.slot for result in found] == [1, 2]
    assert ended.failed == 1


@pytest.mark.filterwarnings("ignore:Heartbeat of storage")
def test_a_worker_that_is_killed_before_its_first_heartbeat_loses_nothing(tmp_path):
    search, url = grid(tmp_path, heartbeat=1)
    with open_search(search, url) as study:
        study.ask()
    found, _, _ = worked(search, url, lambda trial, point: (point["x"], 0.0))
    assert [result.values for result in found] == [(1.0, 0.0), (2.0, 0.0), (3.0, 0.0)]


@pytest.mark.filterwarnings("ignore:Heartbeat of storage")
def test_sqlite_gives_a_trial_to_one_worker(tmp_path):
    """Another worker asks for a trial between the moments in which the first one reads its state and changes it."""
    search, url = grid(tmp_path)
    numbers = []
    with open_search(search, url) as one, open_search(search, url) as other:
        asking = threading.Thread(target=lambda: numbers.append(other.ask().number))

        @event.listens_for(one._storage._backend.engine, "before_cursor_execute")
        def read(connection, cursor, statement, *rest):
            if statement.startswith("UPDATE trials") and not asking.ident:
                asking.start()
                asking.join(0.3)

        numbers.append(one.ask().number)
        asking.join()
        other._storage.remove_session()
    assert sorted(numbers) == [0, 1]


@pytest.mark.parametrize("end", ["returns", "reports", "prunes", "refuses"])
def test_a_worker_that_was_declared_dead_goes_on(end, tmp_path):
    """More often than a slot may kill its workers: nothing is lost, nothing counted twice."""
    search, url = grid(tmp_path)
    calls = []

    def objective(trial, point):
        calls.append(point["x"])
        if calls.count(2.0) <= 5 and point["x"] == 2.0:  # paused for longer than two heartbeats
            trial.study._storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)
            if end == "reports":
                trial.set_user_attr("history", [])
            if end == "prunes":
                raise TrialPruned
            if end == "refuses":
                raise GossamerError("diverged")
        return point["x"], 0.0

    found, _, ended = worked(search, url, objective)
    assert [result.values for result in found] == [(1.0, 0.0), (2.0, 0.0), (3.0, 0.0)]
    assert calls == [1.0, 2.0, 3.0, *[2.0] * 5]
    assert ended.done


@pytest.mark.filterwarnings("ignore:Heartbeat of storage")
def test_a_worker_may_be_declared_dead_on_its_last_lines(tmp_path):
    search, url = grid(tmp_path)
    with open_search(search, url) as study:
        trial = study.ask()
        seal(trial, {"x": 1.0}, (1.0, 0.0))
        study.tell(trial, state=TrialState.FAIL)
        assert results(study) == []
    assert len(worked(search, url, lambda trial, point: (point["x"], 0.0))[0]) == 3


def test_a_damaged_storage_is_no_failure_of_a_slot(tmp_path):
    search, url = grid(tmp_path)

    def objective(trial, point):
        raise DamagedStorageError("not as it was recorded")

    with pytest.raises(DamagedStorageError):
        worked(search, url, objective)
    with open_search(search, url) as study:
        assert states(study) == States(finished=0, pruned=0, failed=0, running=0, waiting=3)
    assert len(worked(search, url, lambda trial, point: (point["x"], 0.0))[0]) == 3


def test_a_slot_whose_worker_has_crashed_is_not_done(tmp_path):
    search, url = grid(tmp_path)
    with open_search(search, url) as study:
        for trial in study.get_trials():
            study._storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)
        assert not states(study).done
        assert states(study).failed == 0


GONE = [
    GossamerError("it is gone"),
    StorageInternalError("it is gone\n"),
    OperationalError("", {}, OSError("it is gone")),
]


@pytest.mark.parametrize("error", GONE, ids=lambda error: type(error).__name__)
def test_a_worker_without_its_database_ends_with_one_line(error, tmp_path, monkeypatch):
    def work_without(*args):
        raise error

    monkeypatch.setattr(training_trials, "work", work_without)
    monkeypatch.setattr(signal, "signal", lambda number, action: None)  # those of this process
    with pytest.raises(SystemExit, match=r"a worker has ended: .*it is gone$"):
        training_trials.work_on_trainings(*grid(tmp_path), None)


def test_a_pareto_search_has_as_many_trials_as_asked_for(tmp_path):
    search, url = grid(tmp_path, trials=6)
    found, _, _ = worked(search, url, lambda trial, point: (point["x"], 1 / point["x"]))
    assert len(found) == 6
    assert all(1 <= result.point["x"] <= 3 for result in found)
    assert len({result.point["x"] for result in found}) == 6


def test_workers_of_a_pareto_search_draw_different_points(tmp_path):
    search, url = grid(tmp_path, trials=8)
    together, calls = threading.Barrier(2), []

    def objective(trial, point):
        calls.append(point["x"])
        if len(calls) <= 2:
            together.wait(timeout=60)
        return point["x"], 1 / point["x"]

    def worker():
        with open_search(search, url) as study:
            work(study, search, objective)

    threads = [threading.Thread(target=worker) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with open_search(search, url) as study:
        assert len({result.point["x"] for result in results(study)}) == 8


def test_a_pareto_search_that_was_interrupted_draws_new_points(tmp_path):
    search, url = grid(tmp_path, trials=6)
    for _ in range(3):
        calls = []

        def objective(trial, point, calls=calls):
            calls.append(point)
            if len(calls) == 3:
                raise KeyboardInterrupt
            return point["x"], 1 / point["x"]

        with suppress(KeyboardInterrupt):
            worked(search, url, objective)
    with open_search(search, url) as study:
        assert len({result.point["x"] for result in results(study)}) == 6


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"x": [5.0]}, r"values was \{'x': \[1.0, 2.0, 3.0\]\}, and is \{'x': \[5.0\]\} now"),
        (None, "epochs was 1, and is 3"),
    ],
)
def test_other_trainings_under_the_same_name_are_refused(tmp_path, other, said):
    search, url = grid(tmp_path, settings={"epochs": 1})
    with open_search(search, url):
        pass
    changed = Search("one", other or search.values, settings={"epochs": 1 if other else 3})
    with pytest.raises(GossamerError, match=f"{said}.*another `--name`"), open_search(changed, url):
        pass


def test_why_a_slot_has_no_result(tmp_path):
    search, url = grid(tmp_path)

    def objective(trial, point):
        if point["x"] == 2.0:
            raise GossamerError("diverged")
        return point["x"], 0.0

    worked(search, url, objective)
    with open_search(search, url) as study:
        assert failures(study) == ["diverged"]


def test_bad_storages_are_refused(tmp_path):
    search, _ = grid(tmp_path)
    (tmp_path / "text.db").write_text("no database " * 100)
    for url in (f"sqlite:///{tmp_path / 'text.db'}", "nonsense://x", f"sqlite:///{tmp_path / 'absent' / 'x.db'}"):
        with pytest.raises(GossamerError, match="cannot be opened"), open_search(search, url):
            pass


def test_front_and_poor_trials(tmp_path):
    values = [(0.1, 0.5), (0.2, 0.2), (0.3, 0.3), (0.1, 0.6), None, (0.9, 0.0)]
    found = [Result(i, i, {}, each, {}) for i, each in enumerate(values)]
    assert [result.slot for result in pareto_front(found)] == [5, 1, 0]
    assert pareto_figure(found, tmp_path / "front.png").exists()
    others = [[(0.5, 0.9), (0.2, 0.5)]] * 4
    assert is_poor([(0.5, 0.9), (0.3, 0.6)], others)
    assert not is_poor([(0.5, 0.9), (0.3, 0.4)], others)
    assert not is_poor([(0.5, 0.9), (0.3, 0.6)], others[:3])
    assert is_poor([(0.3, 0.6)], [[(0.2, 0.5)]] * 2 + [[(0.9, 0.9)]] * 2)
    assert not is_poor([(0.3, 0.6)], [[(0.2, 0.5)]] * 2 + [[(0.9, 0.9)]] * 3)
    # Nothing is zero yet: a large error may be that of a strong penalty.
    assert not is_poor([(0.3, 1.0)], [[(0.2, 1.0)]] * 4)
    # Compared after as many epochs: those that ended before have no say.
    assert not is_poor([(0.3, 0.6), (0.3, 0.6)], [[(0.2, 0.5)]] * 4)


def test_another_worker_creates_the_tables_at_the_same_moment(tmp_path, monkeypatch):
    errors = []

    class Raced(optuna.storages.RDBStorage):
        def __init__(self, *arguments, **options):
            if not errors:
                reason = sqlite3.IntegrityError("UNIQUE constraint failed: alembic_version.version_num")
                errors.append(IntegrityError("INSERT INTO alembic_version", None, reason))
                raise errors[0]
            super().__init__(*arguments, **options)

    monkeypatch.setattr(optuna.storages, "RDBStorage", Raced)
    search, url = grid(tmp_path)
    with open_search(search, url) as study:
        work(study, search, lambda trial, point: (point["x"], 1 / point["x"]))
    assert errors
