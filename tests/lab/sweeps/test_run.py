"""Real processes and a real SQLite file."""

from __future__ import annotations

import math
import sqlite3
import sys

import pytest

from gossamer import GossamerError
from gossamer_lab.sweeps import Study, finished_trials, run_studies
from gossamer_lab.sweeps.storage import exclusive_writer

GRID = {"x": range(4), "y": (-1.0, 0.5)}


@pytest.fixture
def objectives():
    import sweep_objectives

    return sweep_objectives


@pytest.fixture
def storage(tmp_path):
    return tmp_path / "new folder 100%" / "sweep?.db"


@pytest.fixture
def no_worker(monkeypatch):
    def fail(*_):
        pytest.fail("a worker was started")

    monkeypatch.setattr("gossamer_lab.sweeps.processes._Worker", fail)


def points(trials):
    return sorted(tuple(sorted(trial.parameters.items())) for trial in trials)


def test_two_workers_find_the_minimum_and_try_each_point_once(objectives, storage):
    first, second = Study("first", GRID, trials=8), Study("second", GRID, trials=3, seed=1)
    seen = []
    trials = run_studies(
        [(first, objectives.quadratic), (second, objectives.quadratic)], storage, workers=2, on_trial=seen.append
    )
    assert [(trial.study, trial.number) for trial in trials] == [
        *(("first", number) for number in range(8)),
        *(("second", number) for number in range(3)),
    ]
    assert [trial.parameters for trial in trials] == first.points() + second.points()[:3]
    assert sorted(seen, key=lambda trial: (trial.study, trial.number)) == trials
    assert min(trials, key=lambda trial: trial.value).parameters == {"x": 2, "y": -1}
    for trial in trials:
        assert (trial.value, trial.figures) == objectives.quadratic(trial.parameters)
        assert trial.seconds > 0
        assert trial.failure is None
    assert finished_trials(storage, "first") == trials[:8]
    assert finished_trials(storage, "second") == trials[8:]


def test_a_finished_study_starts_no_worker(objectives, storage, request):
    studies = [(Study("s", GRID, trials=2), objectives.quadratic)]
    trials = run_studies(studies, storage, workers=1)
    request.getfixturevalue("no_worker")
    assert run_studies(studies, storage, workers=1, on_trial=pytest.fail) == trials


def test_known_trials_are_not_made_again(objectives, storage, tmp_path):
    studies = [(Study("s", {"x": range(4)}, trials=4), objectives.diverging)]
    trials = run_studies(studies, storage, workers=1)
    known = trials[:3]
    assert any(trial.failure for trial in known)
    made = []
    again = run_studies(studies, tmp_path / "other.db", workers=1, known=known, on_trial=made.append)
    assert again[:3] == known
    assert [trial.parameters for trial in made] == [trials[3].parameters]
    assert run_studies(studies, storage, workers=1, known=known, on_trial=pytest.fail) == trials


def test_a_larger_budget_goes_on_and_another_grid_keeps_what_it_shares(objectives, storage):
    def run(grid, trials):
        seen = []
        study = Study("s", grid, trials=trials)
        return run_studies([(study, objectives.quadratic)], storage, workers=1, on_trial=seen.append), seen

    three, _ = run(GRID, 3)
    five, new = run(GRID, 5)
    assert five[:3] == three
    assert five[3:] == new
    assert [trial.parameters for trial in five] == Study("s", GRID, trials=1).points()[:5]

    narrow = {"x": [0, 1, 9], "y": [-1.0]}
    shared = [trial for trial in five if trial.parameters["x"] < 2 and trial.parameters["y"] == -1]
    trials, new = run(narrow, 3)
    assert trials == shared + new
    assert points(trials) == points(shared + new) == [(("x", x), ("y", -1.0)) for x in (0, 1, 9)]
    assert finished_trials(storage, "s") == five + new


def test_a_diverged_point_counts_and_is_not_tried_again(objectives, storage, request):
    studies = [(Study("s", {"x": range(4)}, trials=4), objectives.diverging)]
    trials = run_studies(studies, storage, workers=1)
    by_point = {trial.parameters["x"]: trial for trial in trials}
    assert {x: trial.failure for x, trial in by_point.items()} == {
        0: None,
        1: "the loss is gone",
        2: "value is nan",
        3: None,
    }
    assert by_point[1].value == by_point[2].value == math.inf
    request.getfixturevalue("no_worker")
    assert run_studies(studies, storage, workers=1) == finished_trials(storage, "s") == trials


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("broken", r"study 's' raised at {'x': .*(?s:.)*ZeroDivisionError: a bug"),
        ("without_figures", "TypeError"),
        ("Unloadable", "ValueError: math domain error"),
    ],
)
def test_an_error_of_the_objective_stops_the_sweep(objectives, storage, name, message):
    objective = getattr(objectives, name)
    objective = objective() if isinstance(objective, type) else objective
    study = Study("s", {"x": range(4)}, trials=4)
    with pytest.raises(GossamerError, match=message):
        run_studies([(study, objective)], storage, workers=1)
    assert finished_trials(storage, "s") == []


def test_workers_have_one_thread(objectives, storage):
    (trial,) = run_studies([(Study("s", {"x": [0]}, trials=1), objectives.threads)], storage, workers=1)
    assert trial.figures == {"torch": 1, "environment": 1}


def test_nothing_is_finished_where_there_is_nothing(storage, objectives, no_worker):
    assert finished_trials(storage, "s") == []
    assert not storage.parent.exists()
    assert run_studies([], storage, workers=1) == []
    assert finished_trials(storage, "s") == []


def test_two_sweeps_on_one_storage_are_refused(objectives, storage):
    studies = [(Study("s", GRID, trials=1), objectives.quadratic)]
    with exclusive_writer(storage), pytest.raises(GossamerError, match="most likely another sweep is running on it"):
        run_studies(studies, storage, workers=1)


def test_bad_input(objectives, tmp_path):
    study = Study("s", GRID, trials=1)
    storage = tmp_path / "sweep.db"
    with pytest.raises(GossamerError, match="distinct names; received several of \\['s'\\]"):
        run_studies([(study, objectives.quadratic)] * 2, storage, workers=1)
    for workers in (0, 1.5, True):
        with pytest.raises(GossamerError, match="`workers` must be an integer, at least 1"):
            run_studies([(study, objectives.quadratic)], storage, workers=workers)
    with pytest.raises(GossamerError, match="can be pickled"):
        run_studies([(study, lambda parameters: (0.0, {}))], storage, workers=1)
    with pytest.raises(GossamerError, match="which is a folder"):
        run_studies([(study, objectives.quadratic)], tmp_path, workers=1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["text", "tables"])
def test_a_file_of_someone_else_is_left_alone(objectives, tmp_path, content):
    storage = tmp_path / "sweep.db"
    if content == "text":
        storage.write_text("not a database, and long enough to be sure of it " * 20)
    else:
        connection = sqlite3.connect(storage)
        connection.execute("CREATE TABLE other (x)")
        connection.close()
    before = storage.read_bytes()
    with pytest.raises(GossamerError, match=r"is not a usable Optuna storage: .*\w\. Restore .*another `storage`"):
        run_studies([(Study("s", GRID, trials=1), objectives.quadratic)], storage, workers=1)
    with pytest.raises(GossamerError, match=r"is not a usable Optuna storage: .*\w\. Restore .*another `storage`"):
        finished_trials(storage, "s")
    assert storage.read_bytes() == before


def test_without_optuna(objectives, storage, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    for call in (
        lambda: run_studies([(Study("s", GRID, trials=1), objectives.quadratic)], storage, workers=1),
        lambda: finished_trials(storage, "s"),
    ):
        with pytest.raises(GossamerError, match=r"need Optuna.*`pip install 'gossamer\[lab\]'`"):
            call()
    assert not storage.parent.exists()
