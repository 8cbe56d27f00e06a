"""Options from a TOML file: the same run as from the command line, which takes precedence."""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from gossamer import GossamerError
from gossamer_lab.cli import main
from gossamer_lab.cli.config_file import read_options, to_toml
from gossamer_lab.cli.options import RunOptions
from gossamer_lab.training import RunDirectory, TrainingConfig
from gossamer_lab.training.fields import settings_of


def gossamer(*words: object) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["gossamer", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
    return int(end.value.code or 0)


def test_a_run_from_a_file_is_saved_as_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('dataset = "digits"\nepochs = 2\nstrength = 0\nseed = 7\ncompare = false\nquiet = true\n')
    assert gossamer("train", "--config", file, "--seed", 5, "--run-dir", tmp_path / "first") == 0
    assert capsys.readouterr() == ("", "")
    first = RunDirectory(tmp_path / "first")
    config = first.read_config()
    assert (config.seed, config.epochs, config.strength) == (5, 2, 0.0)

    assert gossamer("train", "--config", first.options, "--quiet", "--run-dir", tmp_path / "second") == 0
    second = RunDirectory(tmp_path / "second")
    assert second.read_config() == config
    assert second.weights.read_bytes() == first.weights.read_bytes()
    assert not (tmp_path / "second" / "dense").exists()


def test_every_option_can_be_in_the_file(tmp_path: Path) -> None:
    values: dict[str, Any] = {"dataset": "digits"}
    for cls in (TrainingConfig, RunOptions):
        for field in fields(cls):
            if settings_of(cls)[field.name].is_option and field.name != "config":
                kind = str(field.type).removesuffix(" | None")
                values[field.name] = {"str": "l1", "float": 0.5, "int": 3, "bool": True, "Path": Path("some where")}[
                    kind
                ]
    (tmp_path / "all.toml").write_text(to_toml(values))
    assert read_options(tmp_path / "all.toml") == values
    assert tomllib.loads(to_toml(values))["json"] is True


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("strenght = 1", "there is no option 'strenght'. Available: a, affine, "),
        ("epochs = 1.5", "'epochs' must be of type int; received 1.5"),
        ("epochs = true", "'epochs' must be of type int; received True"),
        ("config = 'other.toml'", "there is no option 'config'"),
        ("epochs = ", "is not a TOML file"),
        (f"epochs = {'[' * 5000}", "is not a TOML file in UTF-8: maximum recursion depth"),
    ],
)
def test_a_wrong_file(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "wrong.toml").write_text(text)
    with pytest.raises(GossamerError, match=re.escape(complaint)):
        read_options(tmp_path / "wrong.toml")


def test_a_file_that_is_not_there_and_a_data_set_that_is_not_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gossamer("train", "--config", tmp_path / "none.toml") == 2
    assert capsys.readouterr().err.startswith("error: ")
    (tmp_path / "empty.toml").write_text("")
    assert gossamer("train", "--config", tmp_path / "empty.toml") == 2
    assert "Name a data set" in capsys.readouterr().err


def test_a_file_that_never_ends_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", 2**40)
    for name, reason in (("pipe", "not a plain file"), ("large", "more than")):
        with pytest.raises(GossamerError, match=f"{name} cannot be used.*{reason}"):
            read_options(tmp_path / name)
