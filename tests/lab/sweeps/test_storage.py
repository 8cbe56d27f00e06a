"""What a process leaves behind that is killed between two writes."""

from __future__ import annotations

import math

import optuna
import pytest

from gossamer_lab.sweeps import Study, finished_trials
from gossamer_lab.sweeps.storage import StudyRecord, exclusive_writer, open_storage

STUDY = Study("s", {"x": range(3)}, trials=3)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "sweep.db"


@pytest.fixture
def storage(path):
    with exclusive_writer(path), open_storage(path) as storage:
        yield storage


def test_trials_that_were_waiting_or_running_are_tried_again(storage, path):
    first, second, third = STUDY.points()
    record = StudyRecord(storage, STUDY)
    done = record.complete(record.start(second), 1.0, {"accuracy": 0.5}, 2.0)
    record.start(first).set_user_attr("figures", {})
    study = optuna.load_study(study_name="s", storage=storage)
    study.enqueue_trial(third)

    record = StudyRecord(storage, STUDY)
    assert record.finished() == finished_trials(path, "s") == [done]
    assert record.next_points() == [first, third]
    states = [trial.state.name for trial in study.get_trials()]
    assert states == ["COMPLETE", "FAIL", "FAIL"]
    assert record.start(first).params == first


def test_a_point_without_value_counts_once_its_reason_is_written(storage):
    first, *others = STUDY.points()
    StudyRecord(storage, STUDY).start(first).set_user_attr("failure", "diverged")
    record = StudyRecord(storage, STUDY)
    (trial,) = record.finished()
    assert (trial.parameters, trial.value, trial.failure) == (first, math.inf, "diverged")
    assert record.next_points() == others


def test_a_storage_is_created_whole(path):
    partial = path.with_name(".sweep.db.killed.partial")
    partial.mkdir()
    (partial / "sweep.db").write_text("what a killed process left")
    with exclusive_writer(path):
        assert path.exists()
        assert finished_trials(path, "s") == []
