from __future__ import annotations

import shlex
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from gossamer_lab.cli import app, main


def leaves(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, with its words."""
    inner = getattr(command, "commands", {})
    if not inner:
        yield words, command
    for name, one in inner.items():
        yield from leaves(one, (*words, name))


COMMANDS = dict(leaves(typer.main.get_command(app)))


def called(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    """Call the command in this process; return exit code, stdout and stderr."""
    monkeypatch.setattr("sys.argv", ["gossamer", *words])
    with pytest.raises(SystemExit) as end:
        main()
    out, err = capsys.readouterr()
    return int(end.value.code or 0), out, err


def test_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert called(["--version"], monkeypatch, capsys) == (0, version("gossamer") + "\n", "")


def test_help_names_the_options_of_the_contract(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    code, out, _ = called(["train", "--help"], monkeypatch, capsys)
    assert code == 0
    settings = {"--regularizer", "--strength", "--a", "--s", "--cost-exponent", "--affine", "--epochs", "--tolerance"}
    settings |= {"--seed", "--regrow"}
    files = {"--run-dir", "--data-dir", "--resume", "--overwrite", "--compact", "--compare", "--no-compare", "--json"}
    assert {option for option in settings | files if option not in out} == set()


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_has_an_example_that_it_understands(words: tuple[str, ...]) -> None:
    command = COMMANDS[words]
    assert command.epilog is not None
    program, *example = shlex.split(command.epilog.removeprefix("Example: "))
    assert (program, *example[: len(words)]) == ("gossamer", *words)
    command.make_context(words[-1], example[len(words) :])
    options = {name for parameter in command.params for name in parameter.opts}
    assert "--json" in options
    assert "--quiet" in options or words in (("measure",), ("data", "list"))  # which only print


def test_the_shell_completes_commands_options_and_data_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    def completed(line: str) -> list[str]:
        words = line.split(" ")
        environment = {
            "_GOSSAMER_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1),
        }  # fmt: skip
        result = CliRunner().invoke(app, [], prog_name="gossamer", env=environment)
        return result.output.split()

    assert completed("gossamer sw") == ["sweep"]
    assert completed("gossamer train fash") == ["fashion-mnist"]
    assert completed("gossamer train mnist --run-") == ["--run-dir"]
    assert completed("gossamer paper abl") == ["ablation"]


@pytest.mark.parametrize("words", [["train"], ["train", "digits", "--epochs", "many"], ["trian"]])
def test_wrong_words_end_with_code_2(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = called(words, monkeypatch, capsys)
    assert (code, out) == (2, "")
    assert err


def test_an_error_is_one_line_and_code_2(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    line = "error: Unknown data set 'stars'. Available: digits, mnist, fashion-mnist, pendigits, sdd, cifar-10.\n"
    assert called(["train", "stars"], monkeypatch, capsys) == (2, "", line)


def test_an_option_reaches_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "digits", "--affine", "3", "--run-dir", str(tmp_path / "run")]
    line = "error: `affine` must be a number from 0 to 1/2; received 3.0.\n"
    assert called(words, monkeypatch, capsys) == (2, "", line)


def test_what_the_system_refuses_is_one_line_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    code, out, err = called(["train", "digits", "--run-dir", str(tmp_path / "file" / "run")], monkeypatch, capsys)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_the_app_is_named_after_the_command() -> None:
    assert app.info.name == "gossamer"
