from __future__ import annotations

import signal
import warnings
from pathlib import Path
from typing import Any

import pytest

from gossamer_lab.sweeps import training_trials
from gossamer_lab.sweeps.search import Search, open_search, results, states
from gossamer_lab.sweeps.training_trials import TrainingTrial, work_on_trainings
from gossamer_lab.sweeps.worker import work
from gossamer_lab.training import TrainingConfig

pytestmark = pytest.mark.filterwarnings("ignore::gossamer.SparsityWarning")  # of one epoch

CONFIG = TrainingConfig(dataset="digits", regularizer="l1", epochs=1, images=100)


@pytest.mark.parametrize("prunes", [False, True])
def test_a_grid_is_trained_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prunes: bool) -> None:
    monkeypatch.setattr(training_trials, "is_poor", lambda history, others: True)
    search = Search("grid", {"strength": [1e-3, 1e-2]})
    with open_search(search, str(tmp_path / "sweep.db")) as study:
        work(study, search, TrainingTrial(CONFIG, tmp_path / "runs", None, prunes))
        assert (states(study).finished, states(study).pruned) == ((0, 2) if prunes else (2, 0))
        assert [result.values is None for result in results(study)] == [prunes] * 2
    runs = list((tmp_path / "runs").iterdir())
    assert len(runs) == 2
    assert not [file for run in runs for file in run.glob("checkpoint*")]


def test_warnings_of_a_worker_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def work_and_warn(*arguments: Any) -> None:
        warnings.warn("a layer is empty", stacklevel=1)

    monkeypatch.setattr(training_trials, "work", work_and_warn)
    monkeypatch.setattr(signal, "signal", lambda number, action: None)  # those of this process
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # restored at the end
    warnings.simplefilter("always")
    search = Search("one", {"x": [1.0]})
    work_on_trainings(search, str(tmp_path / "sweep.db"), TrainingTrial(CONFIG, tmp_path, None, False))
    assert capsys.readouterr().err == "warning: a training of the sweep: a layer is empty\n"
