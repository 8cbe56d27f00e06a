"""The command on the committed result files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from statistics import fmean

import pytest
from typer.testing import CliRunner

from gossamer.errors import GossamerError
from gossamer_lab.cli import app
from gossamer_lab.paper import EXPERIMENTS
from gossamer_lab.paper.experiments import load_experiment
from gossamer_lab.paper.outcomes import read_outcomes

ROOT = Path(__file__).parents[3]
COMMITTED = ROOT / "experiments"
FIXTURE = ROOT / "tests" / "fixtures" / "paper_table.json"


def called(*words: str | Path, results: Path = COMMITTED) -> str:
    result = CliRunner().invoke(
        app, ["paper", *map(str, words), "--results", str(results)], catch_exceptions=False, env={"COLUMNS": "200"}
    )
    assert result.exit_code == 0
    return result.stdout


def contents(folder: Path) -> dict[Path, bytes]:
    return {file.relative_to(folder): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the committed files."""
    folder = tmp_path_factory.mktemp("copy") / "experiments"
    shutil.copytree(COMMITTED, folder)
    return folder


def test_the_table_is_what_the_result_files_say() -> None:
    rows = json.loads(called("table", "--only", "pendigits", "--json"))["rows"]
    assert [row["method"] for row in rows] == ["l1", "sgl", "cges", "itl"]
    outcomes = read_outcomes(COMMITTED / "table" / "pendigits.jsonl")
    for row in rows:
        results = [outcome.result for outcome in outcomes if outcome.job.key == row["method"]]
        assert row["seeds"] == len(results) == 3
        assert row["accuracy"] == pytest.approx(fmean(result.accuracy for result in results))
        assert row["flops_kept"] == pytest.approx(fmean(result.flops_kept for result in results))
        assert row["params_kept"] == pytest.approx(fmean(result.params_kept for result in results))


def test_the_table_is_that_of_the_code_before() -> None:
    assert json.loads(called("table", "--json")) == json.loads(FIXTURE.read_text())


def test_a_terminal_gets_a_table() -> None:
    text = called("table", "--only", "pendigits")
    assert "PENDIGITS" in text
    assert "published" in text


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_showing_writes_nothing_and_trains_nothing(
    name: str, copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gossamer_lab.training.loop.train", None)
    monkeypatch.setattr("gossamer_lab.networks.build", None)
    before = contents(copy)
    text = called(name, results=copy)
    assert contents(copy) == before
    assert list(tmp_path.iterdir()) == []
    experiment = load_experiment(name)
    for file in experiment.outputs:
        assert str(copy / experiment.folder / file) in text


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_writing_again_gives_the_committed_files(name: str, copy: Path, tmp_path: Path) -> None:
    experiment = load_experiment(name)
    files = [copy / experiment.folder / file for file in experiment.outputs]
    for file in files:
        file.unlink()
    called(name, "--write", "--runs", tmp_path, results=copy)
    for file in files:
        if file.suffix == ".md":
            assert file.read_bytes() == (COMMITTED / experiment.folder / file.name).read_bytes()
        else:  # the pixels may differ between versions of the renderer
            assert file.read_bytes().startswith(b"\x89PNG\r\n")
    assert list(tmp_path.iterdir()) == []


def test_a_figure_that_does_not_exist_is_said(tmp_path: Path) -> None:
    with pytest.raises(GossamerError, match=r"No results in .*boxplots\.png"):
        called("boxplots", results=tmp_path)


def test_without_results_nothing_is_trained_unasked(tmp_path: Path) -> None:
    with pytest.raises(GossamerError, match=r"train what is missing with `--train`"):
        called("table", results=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_all_shows_the_rest_and_names_what_failed(copy: Path, tmp_path: Path) -> None:
    partial = tmp_path / "experiments"
    shutil.copytree(copy, partial, ignore=shutil.ignore_patterns("ablation", "filters"))
    outcome = CliRunner().invoke(app, ["paper", "all", "--results", str(partial)])
    assert "Effect of a on DIGITS" in outcome.stdout
    assert isinstance(outcome.exception, GossamerError)
    assert [line.split(":")[0] for line in str(outcome.exception).splitlines()] == ["filters", "ablation"]


def test_what_is_missing_is_listed_and_not_trained(copy: Path, tmp_path: Path) -> None:
    assert called("references", "--missing", results=copy) == "references: nothing is missing\n"
    (tmp_path / "tuning").mkdir()
    lines = called("references", "--missing", results=tmp_path).splitlines()
    assert [line.split("-")[0] for line in lines] == [
        "references: search units",
        "references: search weights",
        "references: search perceptron",
    ]
    shutil.copytree(copy / "tuning", tmp_path / "tuning", dirs_exist_ok=True)
    listed = called("references", "--missing", results=tmp_path)
    assert listed == f"references: {tmp_path / 'references' / 'results.jsonl'}: 9 of 9 trainings\n"
    assert [path.name for path in tmp_path.iterdir()] == ["tuning"]


@pytest.mark.parametrize("words", [["--train"], ["--write"]])
def test_a_part_never_replaces_the_whole(words: list[str], copy: Path) -> None:
    before = contents(copy)
    with pytest.raises(GossamerError, match=r"the whole in the result files by a part\. Add `--into FOLDER`"):
        called("effect-of-a", "--seeds", "1", *words, results=copy)
    assert contents(copy) == before


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["stars"], r"Unknown experiment 'stars'\. Available: table, .*all\."),
        (["table", "--only", "stars"], r"Unknown data set 'stars'\. Available: digits, "),
        (["boxplots", "--only", "sdd"], r"'boxplots' does not use sdd"),
        (["table", "--quick", "--into", "x"], r"`--quick` is a smoke test"),
        (["table", "--into", "x", "--page", "y"], "Leave one of them out"),
    ],
)
def test_bad_input_is_refused(words: list[str], complaint: str) -> None:
    with pytest.raises(GossamerError, match=complaint):
        called(*words)


@pytest.mark.parametrize("variable", [None, "nowhere"])
def test_outside_the_repository_the_error_says_what_is_needed(
    variable: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GOSSAMER_EXPERIMENTS", raising=False)
    if variable is not None:
        monkeypatch.setenv("GOSSAMER_EXPERIMENTS", variable)
    with pytest.raises(GossamerError) as caught:
        CliRunner().invoke(app, ["paper", "table"], catch_exceptions=False)
    message = str(caught.value)
    for part in ("`experiments` of the gossamer repository", "`--results DIR`", "GOSSAMER_EXPERIMENTS", variable or ""):
        assert part in message
    assert "\n" not in message
    assert list(tmp_path.iterdir()) == []


def test_the_variable_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GOSSAMER_EXPERIMENTS", str(COMMITTED))
    result = CliRunner().invoke(app, ["paper", "interpretation"], catch_exceptions=False)
    assert "Last layers on DIGITS" in result.stdout


def test_a_page_gets_the_tables_of_the_experiments(copy: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- begin ablation/table.md -->\nold\n<!-- end ablation/table.md -->\n")
    called("ablation", "--page", page, results=copy)
    assert (COMMITTED / "ablation" / "table.md").read_text().strip() in page.read_text()
    with pytest.raises(GossamerError, match="`--page` must be an existing page"):
        called("ablation", "--page", tmp_path / "absent.md", results=copy)
