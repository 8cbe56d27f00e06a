from __future__ import annotations

import json
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from typer.testing import CliRunner

from gossamer_lab.cli import app
from gossamer_lab.cli.options import RunOptions
from gossamer_lab.cli.report import train_command
from gossamer_lab.cli.train import run_training
from gossamer_lab.training import REGULARIZERS, SETTINGS, RunDirectory, TrainingConfig, defaults

STORED = Path(__file__).parents[2] / "fixtures" / "run_format_1" / "finished"


def config_of(dataset: str = "digits", regularizer: str = "integrated-tl1", **settings: Any) -> TrainingConfig:
    chosen = {**defaults(dataset, regularizer), "regularizer": regularizer, **settings}
    return TrainingConfig(dataset=dataset, **chosen)


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    return Path(shutil.copytree(STORED, tmp_path / "run"))


@pytest.mark.parametrize(
    "config",
    [
        *(config_of(regularizer=name) for name in REGULARIZERS),
        *(config_of(dataset) for dataset in SETTINGS),
        config_of(epochs=50, compact_every=5, strength=2e-5, a=0.02, s=0.3, affine=0.05, tolerance=1e-7, seed=9),
        config_of(regrow=True, cost_exponent=0.25),
    ],
    ids=lambda config: f"{config.dataset}-{config.regularizer}",
)
@pytest.mark.parametrize("compare", [True, False])
def test_the_command_trains_with_the_same_configuration(
    config: TrainingConfig, compare: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command really runs, all but the data and the training."""
    command = train_command(config, tmp_path / "a run", compare=compare)
    assert command.purpose == "Train it again"
    monkeypatch.setattr("gossamer_lab.cli.train.obtain", lambda *_: None)
    monkeypatch.setattr("gossamer_lab.cli.train.load_dataset", Mock())
    monkeypatch.setattr("gossamer_lab.cli.train.require_reachable_target", lambda *_: None)
    monkeypatch.setattr("gossamer_lab.cli.train._train_and_show", lambda *_: None)
    monkeypatch.setattr("gossamer_lab.cli.train.assemble", lambda *_: (None, None))
    program, *words = shlex.split(command.line.replace("\\\n", ""))
    assert program == "gossamer"
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    again = tmp_path / "a run-again"
    assert RunDirectory(again).read_config() == config
    assert any(path.is_dir() for path in again.iterdir()) == compare


def test_settings_without_an_option_are_named() -> None:
    config = replace(config_of(), batch_size=32, validation_fraction=0.2)
    purpose = train_command(config, Path("run"), compare=True).purpose
    assert purpose == "Train it again (there is no option for validation_fraction = 0.2, batch_size = 32)"


@pytest.mark.usefixtures("without_bundle")
def test_the_command_writes_the_page_of_a_run(stored: Path, tmp_path: Path) -> None:
    shutil.copytree(STORED, stored / "dense")
    result = CliRunner().invoke(app, ["report", str(stored)], catch_exceptions=False)
    assert result.output == f"{stored / 'report.html'}\n"
    html = (stored / "report.html").read_text(encoding="utf-8")
    assert f"gossamer report {stored}" in html
    assert f"gossamer shrink {stored}" in html
    assert "gossamer train digits" in html
    output = tmp_path / "other.html"
    words = ["report", str(stored), str(STORED), "--output", str(output), "--json"]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert json.loads(result.output) == {"report": str(output)}
    assert f"gossamer report {stored} {STORED} --output {output}" in output.read_text(encoding="utf-8")


@pytest.mark.usefixtures("without_bundle")
def test_the_page_can_be_opened(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    CliRunner().invoke(app, ["report", str(stored), "--open"], catch_exceptions=False)
    assert opened == [(stored / "report.html").resolve().as_uri()]


@pytest.mark.usefixtures("without_bundle")
def test_a_training_ends_with_its_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_training("digits", {"epochs": 1}, RunOptions(run_dir=tmp_path / "run", compare=False)) == 0
    assert f"report:           {tmp_path / 'run' / 'report.html'}" in capsys.readouterr().out
    assert "<h1>digits: integrated-tl1" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    again = RunOptions(run_dir=tmp_path / "run", compare=False, overwrite=True, as_json=True)
    run_training("digits", {"epochs": 1}, again)
    assert capsys.readouterr().out.count("\n") == 1


def test_without_plotly_a_training_ends_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert run_training("digits", {"epochs": 1}, RunOptions(run_dir=tmp_path / "run", compare=False)) == 0
    assert "no report was written: a report needs plotly" in capsys.readouterr().err
    assert not (tmp_path / "run" / "report.html").exists()
