"""Every experiment in its small version: real trainings in real processes, result files, then table or figure."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from gossamer_lab.data import find, roots, source
from gossamer_lab.paper import EXPERIMENTS, Place, Request

NEEDS = {
    "table": ("pendigits",),
    "plain": ("pendigits",),
    "boxplots": ("pendigits",),
    "tradeoff": ("pendigits",),
    "levers": ("pendigits",),
    "convergence": ("mnist",),
    "filters": ("mnist",),
    "references": ("mnist",),
}


@dataclass
class Seen:
    """Counts what a watcher is told."""

    total: int = 0
    done: list[str] = field(default_factory=list)

    def begin(self, title: str, total: int) -> None:
        self.total += total

    def advance(self, text: str) -> None:
        self.done.append(text)

    def say(self, text: str) -> None:
        self.done.append(text)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """One place for all, as the experiments share their tuning and their runs."""
    folder = tmp_path_factory.mktemp("paper")
    return Place(folder, folder / "tuning", folder / "runs", workers=1)


def is_here(dataset: str) -> bool:
    return len(find(source(dataset), roots())) == len(source(dataset).parts)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_quick_version_works_and_a_second_time_makes_nothing_again(name: str, place: Place) -> None:
    if missing := [dataset for dataset in NEEDS.get(name, ()) if not is_here(dataset)]:
        pytest.skip(f"needs the files of {missing[0]}: set GOSSAMER_DATA")
    seen = Seen()
    request = Request(place, seen, datasets=NEEDS.get(name, ()), seeds=(0,), quick=True)
    report = EXPERIMENTS[name].run(request)
    assert report.files or report.json["rows"]  # a part of the table is shown, and written nowhere
    assert all(file.stat().st_size > 100 for file in report.files)
    assert len(seen.done) <= seen.total  # a search may end before its last trial
    again = Seen()
    assert EXPERIMENTS[name].run(Request(place, again, NEEDS.get(name, ()), (0,), True)).json == report.json
    assert (again.total, again.done) == (0, [])
