"""The command on the result files that are kept with the code."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean

import pytest
from typer.testing import CliRunner

from gossamer.errors import GossamerError
from gossamer_lab.cli import app
from gossamer_lab.paper.outcomes import read_outcomes

EXPERIMENTS = Path(__file__).parents[3] / "experiments"


def called(*words: str) -> str:
    result = CliRunner().invoke(app, ["paper", *words, "--results", str(EXPERIMENTS)], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_the_table_is_what_the_result_files_say(tmp_path: Path) -> None:
    rows = json.loads(called("table", "--only", "pendigits", "--json"))["rows"]
    assert [row["method"] for row in rows] == ["l1", "sgl", "cges", "itl"]
    outcomes = read_outcomes(EXPERIMENTS / "table" / "pendigits.jsonl")
    for row in rows:
        results = [outcome.result for outcome in outcomes if outcome.job.key == row["method"]]
        assert row["seeds"] == len(results) == 3
        assert row["accuracy"] == pytest.approx(fmean(result.accuracy for result in results))
        assert row["flops_kept"] == pytest.approx(fmean(result.flops_kept for result in results))
        assert row["params_kept"] == pytest.approx(fmean(result.params_kept for result in results))


def test_a_terminal_gets_a_table() -> None:
    text = called("table", "--only", "pendigits")
    assert "PENDIGITS" in text
    assert "published" in text


def test_without_results_nothing_is_trained_unasked(tmp_path: Path) -> None:
    with pytest.raises(GossamerError, match=r"Make them by `--train`"):
        CliRunner().invoke(app, ["paper", "table", "--results", str(tmp_path)], catch_exceptions=False)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_experiment_or_data_set_is_answered_with_the_known_ones() -> None:
    with pytest.raises(GossamerError, match=r"Unknown experiment 'stars'. There is: table, .*all\."):
        called("stars")
    with pytest.raises(GossamerError, match=r"Unknown data set 'stars'. There is: digits, "):
        called("table", "--only", "stars")
