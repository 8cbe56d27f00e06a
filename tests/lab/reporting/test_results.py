from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from gossamer_lab.reporting.results import ResultsFile


@dataclass(frozen=True)
class Job:
    size: float
    seed: int


@dataclass(frozen=True)
class Outcome:
    accuracy: float


JOBS = [Job(0.1, 0), Job(0.1, 1), Job(0.2, 0)]


def test_continues_where_it_stopped(tmp_path: Path) -> None:
    file = ResultsFile(tmp_path / "results.jsonl", Job, Outcome)
    assert file.read() == {}
    trained: list[Job] = []

    def train(job: Job) -> Outcome:
        if len(trained) == 1 and job == JOBS[1]:
            trained.append(job)
            raise KeyboardInterrupt
        trained.append(job)
        return Outcome(job.size)

    with pytest.raises(KeyboardInterrupt):
        file.complete(JOBS, train, minutes=1)
    assert list(file.read()) == JOBS[:1]
    file.complete(JOBS, train, minutes=1)
    assert file.read() == {job: Outcome(job.size) for job in JOBS}
    assert trained == [JOBS[0], JOBS[1], JOBS[1], JOBS[2]]


def test_no_training_starts_after_the_time(tmp_path: Path) -> None:
    file = ResultsFile(tmp_path / "results.jsonl", Job, Outcome)
    file.complete(JOBS, lambda job: Outcome(job.size), minutes=-1)
    assert file.read() == {}


def test_a_line_that_a_kill_cut_off_is_trained_again(tmp_path: Path) -> None:
    file = ResultsFile(tmp_path / "results.jsonl", Job, Outcome)
    file.complete(JOBS[:2], lambda job: Outcome(job.size), minutes=1)
    file.path.write_bytes(file.path.read_bytes()[:-5])
    assert list(file.read()) == JOBS[:1]
    file.complete(JOBS, lambda job: Outcome(job.size), minutes=1)
    assert file.read() == {job: Outcome(job.size) for job in JOBS}
