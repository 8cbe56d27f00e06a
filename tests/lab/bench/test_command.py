"""The command `gossamer bench`."""

import json

from typer.testing import CliRunner

from gossamer.errors import GossamerError
from gossamer_lab.bench import QUESTIONS, Machine, Result, read_result
from gossamer_lab.cli import app


def stub(question):
    return Result(question, "title", "A note.", Machine.here(), ({"name": "x", "value": 1.5},))


def test_tables_files_and_page(monkeypatch, tmp_path):
    for question in QUESTIONS:
        monkeypatch.setitem(QUESTIONS, question, lambda question=question: stub(question))
    page = tmp_path / "page.md"
    page.write_text("<!-- table b -->\n<!-- end of table b -->\n")
    outcome = CliRunner().invoke(app, ["bench", "--output", str(tmp_path), "--page", str(page)])
    assert outcome.exit_code == 0
    for question in QUESTIONS:
        assert f"{question}: title" in outcome.output
        assert read_result(tmp_path / f"{question}.json") == stub(question)
    assert "| x | 1.5 |" in page.read_text()


def test_json_is_the_last_line(monkeypatch, tmp_path):
    monkeypatch.setitem(QUESTIONS, "a", lambda: stub("a"))
    outcome = CliRunner().invoke(app, ["bench", "a", "--json", "--output", str(tmp_path)])
    (result,) = json.loads(outcome.stdout)["results"]
    assert result["rows"] == [{"name": "x", "value": 1.5}]


def test_an_unknown_question():
    outcome = CliRunner().invoke(app, ["bench", "z"])
    assert isinstance(outcome.exception, GossamerError)
