from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gossamer.errors import GossamerError
from gossamer_lab.data import Dataset
from gossamer_lab.paper.compared import L1
from gossamer_lab.paper.outcomes import Job, plus_minus, read_outcomes, write_outcomes
from gossamer_lab.paper.recipes import OURS
from gossamer_lab.paper.runner import LackingError, Place, fingerprint, images_for, outcomes_of, run_of, train_job
from gossamer_lab.training import TrainingConfig, images_of

QUICK = replace(OURS, quick=True)
JOBS = [Job("l1", QUICK.configuration("digits", L1, {"strength": 1e-3}, seed)) for seed in (0, 1)]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, tmp_path / "tuning", tmp_path / "runs", workers=2)


def test_jobs_are_trained_in_processes_once_and_kept(place: Place) -> None:
    file = place.results / "some.jsonl"
    told: list[str] = []
    outcomes = outcomes_of(JOBS, file, place, told.append)
    assert [outcome.job for outcome in outcomes] == JOBS
    assert sorted(told)[0].startswith("digits l1 seed 0 epoch 1: accuracy ")
    assert len(told) == sum(job.config.epochs for job in JOBS)
    assert {outcome.job: outcome for outcome in read_outcomes(file)} == {one.job: one for one in outcomes}

    told.clear()
    assert outcomes_of(JOBS[::-1], file, place, told.append) == outcomes[::-1]
    assert told == []

    third = Job("l1", replace(JOBS[0].config, seed=2))
    with pytest.raises(LackingError, match=r"lacks 1 of 3 trainings\. Make them by `--train`"):
        outcomes_of([*JOBS, third], file, replace(place, may_train=False))


def test_a_worker_gives_what_the_training_here_gives(place: Place) -> None:
    outcome = train_job(place, JOBS[0])
    assert outcome.result.accuracy == outcome.history[-1].test_accuracy
    assert not run_of(JOBS[0].config, place).checkpoint.exists()
    elsewhere = replace(place, runs=place.runs / "other")
    (other,) = outcomes_of(JOBS[:1], place.results / "other.jsonl", elsewhere)
    assert (other.result.accuracy, other.result.params_kept) == (outcome.result.accuracy, outcome.result.params_kept)


@pytest.mark.parametrize("changes", [{"vary": False}, {"slant": 0.2}, {"slant": 0.2, "vary": False}])
def test_trainings_here_see_the_images_of_their_configuration(place: Place, changes: dict[str, Any]) -> None:
    def batch(dataset: Dataset) -> Tensor:
        torch.manual_seed(0)
        return dataset.training_batch(torch.arange(20))[0]

    config = replace(JOBS[0].config, **changes)
    assert not torch.equal(batch(images_for(config, place)), batch(images_for(JOBS[0].config, place)))
    assert torch.equal(batch(images_for(config, place)), batch(images_of(config)))


def test_a_fingerprint_tells_configurations_apart_by_what_is_not_the_default() -> None:
    config = TrainingConfig("digits", "l1", 1e-3)
    others = [replace(config, seed=1), replace(config, dataset="pendigits"), replace(config, network="pendigits")]
    assert len({fingerprint(each) for each in (config, *others)}) == 4
    # What stands in the names of runs and studies that are kept.
    assert fingerprint(config) == fingerprint(replace(config, seed=0, epochs=60)) == "0db7085f4850"


def test_an_error_in_a_worker_is_an_error_here(place: Place) -> None:
    lost = Job("l1", replace(JOBS[0].config, dataset="nowhere"))
    with pytest.raises(GossamerError, match="nowhere"):
        outcomes_of([lost], place.results / "some.jsonl", place)


def test_a_damaged_file_is_said_to_be(tmp_path: Path) -> None:
    file = tmp_path / "some.jsonl"
    file.write_text('{"key": "l1"}\n')
    with pytest.raises(GossamerError, match="is damaged"):
        read_outcomes(file)


def test_the_order_of_the_file_does_not_depend_on_which_ended_first(place: Place) -> None:
    outcomes = [train_job(place, job) for job in JOBS]
    write_outcomes(place.results / "a.jsonl", outcomes)
    write_outcomes(place.results / "b.jsonl", outcomes[::-1])
    assert (place.results / "a.jsonl").read_bytes() == (place.results / "b.jsonl").read_bytes()


def test_mean_and_deviation() -> None:
    assert plus_minus([1.0]) == "1.00"
    assert plus_minus([1.0, 3.0], 1) == "2.0 ± 1.4"
