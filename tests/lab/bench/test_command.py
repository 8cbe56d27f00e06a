"""The command `gossamer bench`."""

import json

import pytest
from typer.testing import CliRunner

from gossamer.errors import GossamerError
from gossamer_lab.bench import BENCHMARKS
from gossamer_lab.bench.result import Machine, Result, read_result, result_file
from gossamer_lab.cli import app


def stub(name):
    return Result(name, "title", "A note.", Machine.here(), ({"name": "x", "value": 1.5},))


@pytest.fixture
def _stubs(monkeypatch):
    monkeypatch.setattr("gossamer_lab.bench.run.load_benchmark", lambda name: lambda **_: stub(name))


@pytest.mark.usefixtures("_stubs")
def test_tables_files_and_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- begin training-step -->\n<!-- end training-step -->\n")
    outcome = CliRunner().invoke(app, ["bench", "--output", str(tmp_path), "--page", str(page)])
    assert outcome.exit_code == 0
    for name in BENCHMARKS:
        assert f"{name}: title" in outcome.output
        assert read_result(result_file(name, tmp_path)) == stub(name)
    assert "| x | 1.5 |" in page.read_text()


@pytest.mark.usefixtures("_stubs")
def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = CliRunner().invoke(app, ["bench", "scaling"])
    assert outcome.exit_code == 0
    assert "scaling: title" in outcome.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("_stubs")
def test_a_page_needs_the_folder_of_the_results(tmp_path):
    outcome = CliRunner().invoke(app, ["bench", "--page", str(tmp_path / "page.md")])
    assert isinstance(outcome.exception, GossamerError)
    assert "Add `--output FOLDER`; in the repository it is benchmarks/results" in str(outcome.exception)
    assert outcome.stdout == ""


@pytest.mark.usefixtures("_stubs")
def test_json_is_the_last_line(tmp_path):
    outcome = CliRunner().invoke(app, ["bench", "proximal-step", "--json", "--output", str(tmp_path)])
    (result,) = json.loads(outcome.stdout)["results"]
    assert result["rows"] == [{"name": "x", "value": 1.5}]


def test_an_unknown_benchmark():
    outcome = CliRunner().invoke(app, ["bench", "z"])
    assert isinstance(outcome.exception, GossamerError)
