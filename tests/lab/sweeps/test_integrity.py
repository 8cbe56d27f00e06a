"""Damaged storages: refused with one error, and never read as something else."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gossamer.errors import GossamerError
from gossamer_lab.sweeps import Study, finished_trials
from gossamer_lab.sweeps.search import Search, open_search, results
from gossamer_lab.sweeps.storage import StudyRecord, exclusive_writer, open_storage
from gossamer_lab.sweeps.worker import work

SEARCH = Search("grid", {"x": [1.0, 2.0]})


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The storage of a finished search."""
    path = tmp_path_factory.mktemp("finished") / "sweep.db"

    def objective(trial, point):
        trial.set_user_attr("history", [[0.5, point["x"]]])
        return point["x"], 0.25

    with open_search(SEARCH, f"sqlite:///{path}") as study:
        work(study, SEARCH, objective)
    return path


@pytest.fixture
def path(finished, tmp_path):
    return Path(shutil.copy(finished, tmp_path))


def read(path):
    with open_search(SEARCH, f"sqlite:///{path}") as study:
        return results(study)


def change(path, statement):
    with closing(sqlite3.connect(path)) as connection:
        changed = connection.execute(statement).rowcount
        connection.commit()
    assert changed > 0


def test_a_whole_storage_is_read(path):
    assert [result.values for result in read(path)] == [(1.0, 0.25), (2.0, 0.25)]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE trial_values SET value = 0.5 WHERE objective = 1", "not as it was recorded"),
        ("UPDATE trial_params SET param_value = 1.5", "not as it was recorded"),
        ("UPDATE trial_user_attributes SET value_json = '[[0.5, 9]]' WHERE key = 'history'", "not as it was recorded"),
        ("UPDATE trial_user_attributes SET value_json = '1' WHERE key = 'slot'", "not as it was recorded"),
        ("DELETE FROM trial_user_attributes WHERE key = 'history'", "not as it was recorded"),
        ("UPDATE trial_user_attributes SET value_json = '[0.5' WHERE key = 'history'", "cannot be read"),
        ("UPDATE trials SET state = 'COMPLETF'", "cannot be read"),
        ("UPDATE trial_params SET distribution_json = '{}'", "cannot be read"),
    ],
)
def test_a_changed_trial_is_refused(path, statement, message):
    change(path, statement)
    with pytest.raises(GossamerError, match=message):
        read(path)


def test_a_study_of_an_earlier_version_is_read(path):
    change(path, "DELETE FROM trial_user_attributes WHERE key = 'checksum'")
    assert len(read(path)) == 2


def test_a_damaged_page_is_refused(path):
    content = bytearray(path.read_bytes())
    page = int.from_bytes(content[16:18], "big")
    content[3 * page : 3 * page + 64] = bytes(64)
    path.write_bytes(content)
    with pytest.raises(GossamerError, match="cannot be opened"):
        read(path)
    with pytest.raises(GossamerError, match="not a usable Optuna storage"):
        finished_trials(path, "grid")


def test_a_changed_trial_of_a_study_is_refused(tmp_path):
    storage, study = tmp_path / "study.db", Study("s", {"x": [1, 2]}, trials=2)
    with exclusive_writer(storage), open_storage(storage) as opened:
        record = StudyRecord(opened, study)
        record.complete(record.start(study.points()[0]), 1.0, {"accuracy": 0.5}, 2.0)
    assert len(finished_trials(storage, "s")) == 1
    change(storage, "UPDATE trial_values SET value = 0.5")
    with pytest.raises(GossamerError, match="not as it was recorded"):
        finished_trials(storage, "s")
