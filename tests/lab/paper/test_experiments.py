"""Every experiment in its smoke test: real trainings, result files, then tables and figures. The table of the paper is
trained in processes of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gossamer.errors import GossamerError
from gossamer_lab.data import find, search_path, source
from gossamer_lab.paper import EXPERIMENTS
from gossamer_lab.paper.experiments import Request, load_experiment
from gossamer_lab.paper.outcomes import MissingResultsError, Outcome
from gossamer_lab.paper.plan import find_missing, make_missing
from gossamer_lab.paper.workspace import Workspace

COMMITTED = Path(__file__).parents[3] / "experiments"
NEEDS = {
    "table": ("pendigits",),
    "plain": ("pendigits",),
    "boxplots": ("pendigits",),
    "tradeoff": ("pendigits",),
    "ablation": ("pendigits",),
    "convergence": ("mnist",),
    "filters": ("mnist",),
    "references": ("mnist",),
}


@dataclass
class Recorder:
    """A reporter that counts."""

    total: int = 0
    done: list[str] = field(default_factory=list)

    def start(self, title: str, total: int) -> None:
        self.total += total

    def advance(self, message: str) -> None:
        self.done.append(message)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """One for all, as the experiments share their tuning and their runs."""
    folder = tmp_path_factory.mktemp("paper")
    return Workspace(folder, folder / "tuning", folder / "runs", workers=1)


def is_here(dataset: str) -> bool:
    return len(find(source(dataset), search_path())) == len(source(dataset).parts)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_smoke_test_works_and_a_second_time_trains_nothing(
    name: str, workspace: Workspace, request: pytest.FixtureRequest
) -> None:
    if name != "table":
        request.getfixturevalue("in_this_process")
    if missing := [dataset for dataset in NEEDS.get(name, ()) if not is_here(dataset)]:
        pytest.skip(f"needs the files of {missing[0]}: set GOSSAMER_DATA")
    experiment = load_experiment(name)
    asked = Request(workspace, datasets=NEEDS.get(name, ()), seeds=(0,), quick=True)
    recorder = Recorder()
    make_missing(experiment, asked, recorder)
    assert not find_missing(experiment, asked)
    results = experiment.read(asked)
    experiment.write(results, asked)
    assert all(file.stat().st_size > 100 for file in experiment.output_files(asked))
    assert len(recorder.done) <= recorder.total  # a search may end before its last trial
    again = Recorder()
    make_missing(experiment, asked, again)
    assert (again.total, again.done) == (0, [])
    assert experiment.json(experiment.read(asked)) == experiment.json(results)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_committed_files_have_all_that_the_experiments_need(name: str, tmp_path: Path) -> None:
    """So they are found under the names of their studies and configurations, which the code computes."""
    missing = find_missing(load_experiment(name), Request(Workspace(COMMITTED, COMMITTED / "tuning", tmp_path)))
    assert not missing, missing.lines()
    assert any(missing.required.values()) == (name != "contours")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_what_is_missing_is_listed(name: str, tmp_path: Path) -> None:
    request = Request(Workspace(tmp_path, tmp_path, tmp_path))
    experiment = load_experiment(name)
    missing = find_missing(experiment, request)
    assert bool(missing) == bool(missing.lines()) == (name != "contours")
    with pytest.raises(MissingResultsError, match=r"No results in .*`--train`"):
        experiment.read(request)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_does_not_exist_is_left_out_and_reported(tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    content = (COMMITTED / "table" / "sdd.jsonl").read_bytes()
    (tmp_path / "table" / "sdd.jsonl").write_bytes(content)
    messages: list[str] = []
    request = Request(Workspace(tmp_path, tmp_path, tmp_path), report=messages.append)
    rows = load_experiment("table").read(request)
    assert {row.dataset for row in rows} == {"sdd"}
    assert len(messages) == 4
    assert all("does not exist and is left out; `--train` creates it" in message for message in messages)


def test_only_the_requested_seeds_are_read(tmp_path: Path) -> None:
    workspace = Workspace(COMMITTED, COMMITTED / "tuning", tmp_path)
    outcomes: list[Outcome] = Request(workspace, seeds=(1,)).outcomes("table/sdd.jsonl")
    assert {outcome.job.config.seed for outcome in outcomes} == {1}


def test_data_sets_that_an_experiment_does_not_use_are_refused(tmp_path: Path) -> None:
    request = Request(Workspace(tmp_path, tmp_path, tmp_path), datasets=("sdd",))
    with pytest.raises(GossamerError, match="uses pendigits, cifar-10; requested: sdd"):
        load_experiment("boxplots").read(request)
    with pytest.raises(GossamerError, match=r"Unknown experiment 'stars'\. Available: table, "):
        load_experiment("stars")
