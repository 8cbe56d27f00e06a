from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gossamer.errors import GossamerError
from gossamer.visualization import Command, Page
from gossamer_lab.reporting import report
from gossamer_lab.reporting.report import compared_runs, write_report
from gossamer_lab.training import RunDirectory

NATIVE = report._native
STORED = Path(__file__).parents[2] / "fixtures" / "run_format_1"


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run of DIGITS that lost units while it trained."""
    shutil.copytree(STORED / "finished", tmp_path / "run")
    return RunDirectory(tmp_path / "run")


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> list[Page]:
    """The data of the pages that are written: without Plotly, and without what takes time (64 inputs, a compiler)."""
    found: list[Page] = []

    def keep(page: Page, path: Path) -> Path:
        found.append(page)
        path.write_text(page.title)
        return path

    monkeypatch.setattr(report, "check_can_write", lambda path: None)
    monkeypatch.setattr(report, "write_page", keep)
    monkeypatch.setattr(report, "_BATCHES", {"1 input": 1})
    monkeypatch.setattr(report, "_native", lambda model, example: None)
    return found


def test_the_page_has_the_numbers_of_the_files(run: RunDirectory, pages: list[Page]) -> None:
    commands = [Command("Train it again", "gossamer train digits")]
    assert write_report(run, run.report, commands=commands) == run.report
    (page,) = pages
    result, metrics = run.read_result(), run.read_metrics()
    main = page.runs[0]
    assert page.title == "digits: integrated-tl1, strength 0.002, seed 1"
    assert page.score == "test accuracy"
    assert (main.accuracy, main.params_kept) == (result.accuracy, result.params_kept)
    assert [epoch.accuracy for epoch in main.history] == [line.test_accuracy for line in metrics]
    assert [epoch.held for epoch in main.history] == [line.phase == "hold" for line in metrics]
    assert dict(page.configuration)["strength"] == "0.002"
    assert "network" not in dict(page.configuration)
    assert dict(page.configuration)["version of torch"] == result.versions["torch"]
    assert page.commands == tuple(commands)


def test_the_network_is_counted_against_the_dense_one(run: RunDirectory, pages: list[Page]) -> None:
    write_report(run, run.report)
    network, result = pages[0].network, run.read_result()
    assert network is not None
    assert network.deployed.params_kept == result.params_kept
    assert network.deployed.flops_kept == result.flops_kept
    assert network.dense.total.weights == result.measurement["total"]["weights"]
    forms = {form.name: form for form in network.variants}
    assert list(forms) == ["dense", "trained", "shrunk"]
    assert forms["trained"].file_bytes == run.weights.stat().st_size
    assert forms["shrunk"].file_bytes == run.small.stat().st_size
    assert forms["dense"].weights == network.dense.total.weights
    assert list(forms["dense"].seconds) == ["1 input"]


def test_the_native_network_is_one_more_form(
    run: RunDirectory, pages: list[Page], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "_native", NATIVE)
    write_report(run, run.report)
    assert pages[0].network is not None
    *_, shrunk, native = pages[0].network.variants
    assert (shrunk.name, native.name) == ("shrunk", "native")
    assert native.memory_bytes is not None
    assert native.seconds["1 input"] > 0
    monkeypatch.setenv("CC", "false")
    monkeypatch.setenv("XDG_CACHE_HOME", str(run.path / "cache"))
    write_report(run, run.report)
    assert pages[1].network is not None
    assert pages[1].network.variants[-1].name == "shrunk"  # the compiler fails


def test_runs_are_called_by_what_tells_them_apart(run: RunDirectory, pages: list[Page], tmp_path: Path) -> None:
    copies = [RunDirectory(Path(shutil.copytree(run.path, tmp_path / name))) for name in ("a", "b")]
    texts = [copy.result.read_text() for copy in copies]
    copies[0].result.write_text(texts[0].replace('"regularizer": "integrated-tl1"', '"regularizer": "none"'))
    write_report(run, run.report, compared=copies[:1])
    assert [one.label for one in pages[-1].runs] == ["integrated-tl1", "dense"]
    copies[1].result.write_text(texts[1].replace('"strength": 0.002', '"strength": 0.5'))
    write_report(run, run.report, compared=copies[1:])
    assert [one.label for one in pages[-1].runs] == ["integrated-tl1, strength 0.002", "integrated-tl1, strength 0.5"]
    copies[1].result.write_text(texts[1].replace('"seed": 1', '"seed": 2'))
    write_report(run, run.report, compared=copies[1:])
    assert [one.label for one in pages[-1].runs] == [
        "integrated-tl1, strength 0.002, seed 1",
        "integrated-tl1, strength 0.002, seed 2",
    ]


def test_runs_inside_a_run_are_compared_with_it(run: RunDirectory) -> None:
    assert compared_runs(run) == []
    for name in ("l1", "dense"):
        shutil.copytree(STORED / "finished", run.path / name)
    shutil.copytree(STORED / "stopped", run.path / "stopped")
    (run.path / "notes").mkdir()
    assert [one.path.name for one in compared_runs(run)] == ["dense", "l1"]
    assert compared_runs(RunDirectory(run.path / "nowhere")) == []


def test_validation_accuracy_is_called_so(run: RunDirectory, pages: list[Page]) -> None:
    run.config.write_text(run.config.read_text().replace('"validation_fraction": 0.0', '"validation_fraction": 0.2'))
    write_report(run, run.report)
    assert pages[0].score == "validation accuracy"


def test_what_is_no_finished_run_is_refused(tmp_path: Path, pages: list[Page]) -> None:
    with pytest.raises(GossamerError, match=r"is not a run: there is no config\.json\. Give a folder"):
        write_report(RunDirectory(tmp_path), tmp_path / "page.html")
    shutil.copytree(STORED / "stopped", tmp_path / "stopped")
    with pytest.raises(GossamerError, match=r"no finished run: there is no result\.json, .* --resume"):
        write_report(RunDirectory(tmp_path / "stopped"), tmp_path / "page.html")
    assert pages == []
