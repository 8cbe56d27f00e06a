"""The options of `gossamer train` are those that the dataclasses declare."""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gossamer_lab.cli import app
from gossamer_lab.cli.options import RunOptions, given, with_options
from gossamer_lab.training import TrainingConfig
from gossamer_lab.training.fields import settings_of

DECLARED = [(cls, name) for cls in (TrainingConfig, RunOptions) for name in settings_of(cls)]


@pytest.fixture(scope="module")
def page() -> str:
    return " ".join(CliRunner().invoke(app, ["train", "--help"], env={"COLUMNS": "400"}).stdout.split())


@pytest.mark.parametrize(("cls", "name"), DECLARED)
def test_an_option_has_its_name_and_help(page: str, cls: type, name: str) -> None:
    declared = settings_of(cls)[name]
    flags = (declared.flag or f"--{name.replace('_', '-')}").split("/")
    assert all((f"{flag} " in page) == declared.is_option for flag in flags)
    if declared.is_option:
        assert declared.help in page


def test_only_options_that_were_given_reach_the_configuration() -> None:
    values: dict[str, object] = {name: None for name, each in settings_of(TrainingConfig).items() if each.is_option}
    assert given(TrainingConfig, {**values, "regrow": False}) == {}
    assert given(TrainingConfig, {**values, "regrow": True, "seed": 0, "strength": 0.0}) == {
        "strength": 0.0,
        "seed": 0,
        "regrow": True,
    }


def test_parameters_of_the_command_come_first_and_flags_have_their_defaults() -> None:
    calls = []
    command = with_options(lambda **values: calls.append(values), Run=RunOptions)
    parameters = inspect.signature(command).parameters
    assert list(parameters) == [field.name for field in fields(RunOptions)]
    assert {name: each.default for name, each in parameters.items()} == {
        field.name: field.default for field in fields(RunOptions)
    }
    command(run_dir=Path("x"), compare=True)
    assert calls == [{"run_dir": Path("x"), "compare": True}]
