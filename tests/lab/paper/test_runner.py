from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gossamer.errors import GossamerError
from gossamer_lab.data import Dataset
from gossamer_lab.paper.methods import L1
from gossamer_lab.paper.outcomes import Job, Outcome, read_outcomes, write_outcomes
from gossamer_lab.paper.recipes import OURS
from gossamer_lab.paper.runner import OUTCOMES, dataset_for, fingerprint, run_directory, train_job
from gossamer_lab.paper.workspace import Workspace
from gossamer_lab.training import TrainingConfig, load_dataset

QUICK = replace(OURS, quick=True)
JOBS = [Job("l1", QUICK.configuration("digits", L1, {"strength": 1e-3}, seed)) for seed in (0, 1)]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path, tmp_path / "tuning", tmp_path / "runs", workers=2)


def test_jobs_are_trained_in_processes_once_and_stored(workspace: Workspace) -> None:
    file = workspace.results / "some.jsonl"
    messages: list[str] = []
    assert OUTCOMES.work(JOBS, workspace) == sum(job.config.epochs for job in JOBS)
    outcomes = OUTCOMES.make(JOBS, file, workspace, messages.append)
    assert [outcome.job for outcome in outcomes] == JOBS
    assert sorted(messages)[0].startswith("digits l1 seed 0 epoch 1: accuracy ")
    assert len(messages) == sum(job.config.epochs for job in JOBS)
    assert {outcome.job: outcome for outcome in read_outcomes(file)} == {one.job: one for one in outcomes}

    messages.clear()
    assert OUTCOMES.work(JOBS, workspace) == 0
    assert OUTCOMES.make(JOBS[::-1], file, workspace, messages.append) == outcomes[::-1]
    assert messages == []

    third = Job("l1", replace(JOBS[0].config, seed=2))
    assert OUTCOMES.missing([*JOBS, third], file) == [third]


@pytest.mark.usefixtures("in_this_process")
def test_an_outcome_of_another_setting_is_superseded_and_other_seeds_stay(workspace: Workspace) -> None:
    file = workspace.results / "some.jsonl"
    OUTCOMES.make(JOBS, file, workspace)
    stronger = Job("l1", replace(JOBS[0].config, strength=2e-3))
    OUTCOMES.make([stronger], file, workspace)
    assert {outcome.job for outcome in read_outcomes(file)} == {stronger, JOBS[1]}


@pytest.mark.usefixtures("in_this_process")
def test_an_outcome_of_a_network_of_another_size_is_missing(workspace: Workspace) -> None:
    file = workspace.results / "some.jsonl"
    (outcome,) = OUTCOMES.make(JOBS[:1], file, workspace)
    content = json.loads(outcome.to_json())
    content["result"]["measurement"]["total"]["weights"] += 1
    write_outcomes(file, [Outcome.from_json(json.dumps(content))])
    assert OUTCOMES.missing(JOBS[:1], file) == JOBS[:1]


def test_a_worker_gives_what_the_training_here_gives(workspace: Workspace) -> None:
    outcome = train_job(workspace, JOBS[0])
    assert outcome.result.accuracy == outcome.history[-1].test_accuracy
    assert not run_directory(JOBS[0].config, workspace).checkpoint.exists()
    elsewhere = replace(workspace, runs=workspace.runs / "other")
    (other,) = OUTCOMES.make(JOBS[:1], workspace.results / "other.jsonl", elsewhere)
    assert (other.result.accuracy, other.result.params_kept) == (outcome.result.accuracy, outcome.result.params_kept)


@pytest.mark.parametrize("changes", [{"augment": False}, {"affine": 0.2}, {"affine": 0.2, "augment": False}])
def test_trainings_here_see_the_images_of_their_configuration(workspace: Workspace, changes: dict[str, Any]) -> None:
    def batch(dataset: Dataset) -> Tensor:
        torch.manual_seed(0)
        return dataset.training_batch(torch.arange(20))[0]

    config = replace(JOBS[0].config, **changes)
    assert not torch.equal(batch(dataset_for(config, workspace)), batch(dataset_for(JOBS[0].config, workspace)))
    assert torch.equal(batch(dataset_for(config, workspace)), batch(load_dataset(config)))


def test_a_fingerprint_tells_configurations_apart_by_what_is_not_the_default() -> None:
    config = TrainingConfig("digits", "l1", 1e-3)
    others = [replace(config, seed=1), replace(config, dataset="pendigits"), replace(config, network="pendigits")]
    assert len({fingerprint(each) for each in (config, *others)}) == 4
    # The fingerprints in the names of stored runs and studies.
    assert fingerprint(config) == fingerprint(replace(config, seed=0, epochs=60)) == "0db7085f4850"


def test_fingerprints_of_renamed_fields_are_those_of_their_earlier_names() -> None:
    # Computed before `vary` became `augment` and `slant` became `affine`.
    config = TrainingConfig("digits", "l1", 1e-3)
    assert fingerprint(replace(config, augment=False)) == "466aa5f14260"
    assert fingerprint(replace(config, affine=0.1)) == "29ffa06b78dd"


def test_an_error_in_a_worker_is_an_error_here(workspace: Workspace) -> None:
    lost = Job("l1", replace(JOBS[0].config, dataset="nowhere"))
    with pytest.raises(GossamerError, match="nowhere"):
        OUTCOMES.make([lost], workspace.results / "some.jsonl", workspace)


def test_a_corrupt_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "some.jsonl"
    file.write_text('{"key": "l1"}\n')
    with pytest.raises(GossamerError, match="is corrupt"):
        read_outcomes(file)


def test_the_order_of_the_file_does_not_depend_on_which_ended_first(workspace: Workspace) -> None:
    outcomes = [train_job(workspace, job) for job in JOBS]
    write_outcomes(workspace.results / "a.jsonl", outcomes)
    write_outcomes(workspace.results / "b.jsonl", outcomes[::-1])
    assert (workspace.results / "a.jsonl").read_bytes() == (workspace.results / "b.jsonl").read_bytes()
