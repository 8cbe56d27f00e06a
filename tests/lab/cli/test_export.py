"""The command `gossamer export`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gossamer.compiler import find_compiler
from gossamer.errors import GossamerError
from gossamer_lab.cli import app
from gossamer_lab.cli.options import RunOptions
from gossamer_lab.cli.shrink import run_shrink
from gossamer_lab.cli.train import run_training

# Two epochs at a strong penalty.
pytestmark = pytest.mark.filterwarnings("ignore::gossamer.SparsityWarning")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run")
    options = RunOptions(run_dir=path, compare=False, as_json=True)
    assert run_training("digits", {"epochs": 2, "strength": 1e-2}, options) == 0
    return path


def export(*words: object) -> str:
    outcome = CliRunner().invoke(app, ["export", *map(str, words)], catch_exceptions=False)
    assert outcome.exit_code == 0
    return outcome.stdout


def test_c_and_onnx_are_written_and_checked(run: Path, tmp_path: Path) -> None:
    said = export(run, "--c", tmp_path / "net.c", "--onnx", tmp_path / "net.onnx", "--check", "--json")
    answer = json.loads(said)
    assert said.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.c", "net.h", "net.onnx"]
    assert answer["network"] == str(run)
    assert answer["onnx"] == {"file": str(tmp_path / "net.onnx"), "bytes": (tmp_path / "net.onnx").stat().st_size}
    assert (answer["c"]["source"], answer["c"]["header"]) == (str(tmp_path / "net.c"), str(tmp_path / "net.h"))
    text = (tmp_path / "net.c").read_text()
    assert f"Constants (flash): {answer['c']['constants_bytes']} bytes" in text
    assert f"Workspace (RAM): {answer['c']['workspace_bytes']} bytes" in text
    assert answer["c"]["sha256"] in text
    assert answer["c"]["check"]["selftest"] == "passed"
    assert answer["c"]["check"]["dense_bytes"] == 4 * 67_104
    assert set(answer["c"]["check"]["native_seconds"]) == {"1", "64"}


def test_the_file_of_a_network_and_one_line_on_what_it_became(run: Path, tmp_path: Path) -> None:
    said = export(run / "small.safetensors", "--c", tmp_path / "digits.c", "--check")
    *_, last = said.splitlines()
    for part in ("digits.c compiles and passes its self-test", "times smaller", "instead of 268.4 kB", "times faster"):
        assert part in last
    for row in ("dense, PyTorch", "shrunk, PyTorch", "native"):
        assert row in said


def test_the_table_of_shrink_has_a_native_row(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_shrink(run, as_json=False)
    assert "native" in capsys.readouterr().out
    monkeypatch.setenv("CC", "/nowhere/cc")
    run_shrink(run, as_json=False)
    out, err = capsys.readouterr()
    assert "native" not in out
    assert "no native network to compare with: the compiler `/nowhere/cc` cannot be run" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], r"There is nothing to write\. Give `--c net\.c`, `--onnx net\.onnx` or both"),
        (["--onnx", "net.onnx", "--check"], r"`--check` compiles and times the C file"),
        (["--c", "nowhere/net.c"], r"there is no folder nowhere\. Create it first"),
        (["--c", "my net.c"], r"The functions are named after the file"),
    ],
)
def test_what_cannot_be_written(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GossamerError, match=message):
        export(run, *words)
    assert not list(tmp_path.iterdir())


def test_what_is_no_network(tmp_path: Path) -> None:
    with pytest.raises(GossamerError, match="has no trained network"):
        export(tmp_path, "--c", tmp_path / "net.c")
    with pytest.raises(GossamerError, match=r"none\.safetensors"):
        export(tmp_path / "none.safetensors", "--c", tmp_path / "net.c")
    assert not list(tmp_path.iterdir())


def test_a_c_file_that_does_not_compile_is_reported(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = subprocess.CompletedProcess([], 1, "", "no space left")
    monkeypatch.setattr(type(find_compiler("c")), "run", lambda *_, **__: failing)
    with pytest.raises(GossamerError, match="no space left"):
        export(run, "--c", tmp_path / "net.c", "--check")


def test_help_has_an_example() -> None:
    outcome = CliRunner().invoke(app, ["export", "--help"])
    assert "gossamer export runs/mine --c net.c" in outcome.output
