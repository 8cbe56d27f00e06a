"""Run directories of the first format, written by an earlier version, still load, shrink, measure and resume."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gossamer_lab.cli import app
from gossamer_lab.training import RunDirectory

FIXTURE = Path(__file__).parents[2] / "fixtures" / "run_format_1"
FINISHED, STOPPED = RunDirectory(FIXTURE / "finished"), RunDirectory(FIXTURE / "stopped")


def called(*words: str | Path) -> dict[str, object]:
    """Call the command; return the JSON object in the last line of stdout."""
    outcome = CliRunner().invoke(app, [*map(str, words), "--json"], catch_exceptions=False)
    assert outcome.exit_code == 0
    answer: dict[str, object] = json.loads(outcome.stdout.splitlines()[-1])
    return answer


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(FIXTURE, tmp_path / "runs")
    return tmp_path / "runs"


def test_configuration_metrics_and_result_load() -> None:
    config = FINISHED.read_config()
    assert (config.dataset, config.regularizer, config.epochs, config.seed) == ("digits", "integrated-tl1", 50, 1)
    assert (config.augment, config.affine, config.compact_every, config.regrow) == (True, 0.05, 5, False)
    assert STOPPED.read_config() == config
    metrics, result = FINISHED.read_metrics(), FINISHED.read_result()
    assert [line.epoch for line in metrics] == list(range(1, 51))
    assert result.accuracy == metrics[-1].test_accuracy == 0.9916666666666667
    assert result.params_kept == result.measurement["params_kept"] == 0.01555793991416309


def test_measure_gives_what_it_gave() -> None:
    assert called("measure", FINISHED.small) == json.loads((FIXTURE / "measure.json").read_text())


def test_shrink_gives_a_network_of_the_same_size(copy: Path) -> None:
    answer, before = called("shrink", copy / "finished"), FINISHED.read_result().small
    assert (answer["weights"], answer["macs"], answer["units"]) == (before["weights"], before["macs"], before["units"])
    assert called("measure", copy / "finished" / "small.safetensors") == called("measure", FINISHED.small)


def test_a_stopped_run_resumes_to_its_end(copy: Path) -> None:
    answer = called("train", "digits", "--resume", "--no-compare", "--run-dir", copy / "stopped")
    finished = FINISHED.read_result()
    assert answer["params_kept"] == finished.params_kept
    assert answer["accuracy"] == pytest.approx(finished.accuracy, abs=0.02)
    assert len(RunDirectory(copy / "stopped").read_metrics()) == finished.epochs
