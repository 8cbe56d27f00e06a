from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gossamer.errors import GossamerError
from gossamer_lab.paper.criteria import MostAccurateWithinSize, SmallestWithinDrop
from gossamer_lab.paper.methods import ITL, L1, TABLE, Method
from gossamer_lab.paper.published import DATASETS
from gossamer_lab.paper.recipes import OURS, PLAIN, Recipe
from gossamer_lab.paper.searches import searches
from gossamer_lab.paper.tuning import Search, best_parameters, finished_trials, tune
from gossamer_lab.paper.workspace import Workspace
from gossamer_lab.sweeps import Trial, write_trials

QUICK = replace(OURS, quick=True)
SEARCH = Search("digits", L1, QUICK, (1e-4, 1e-1), 2, SmallestWithinDrop(drop=0.5), validation=0.2)


def trial(number: int, strength: float, value: float, accuracy: float = 0.9) -> Trial:
    return Trial(SEARCH.study.name, number, {"strength": strength}, value, {"accuracy": accuracy}, 1.0)


def failed(number: int, strength: float) -> Trial:
    return Trial(SEARCH.study.name, number, {"strength": strength}, float("inf"), {}, 1.0, "diverged")


def workspace(folder: Path) -> Workspace:
    return Workspace(folder, folder / "tuning", folder / "runs", workers=1)


@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("recipe", [OURS, PLAIN])
def test_every_method_has_the_same_budget(dataset: str, recipe: Recipe) -> None:
    budgets = {sum(one.trials for one in searches(dataset, method, recipe)) for method in TABLE}
    assert len(budgets) == 1


@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("method", TABLE)
@pytest.mark.parametrize("recipe", [OURS, PLAIN])
def test_the_budget_is_enough_to_find_the_right_strength_or_the_next(
    dataset: str, method: Method, recipe: Recipe
) -> None:
    for one in searches(dataset, method, recipe):
        assert (len(one.strengths) + 1) / 2**one.trials <= 2


def test_the_best_trial_is_chosen_and_its_shape_comes_along() -> None:
    shaped = replace(SEARCH, method=ITL, shape=(("a", 0.1),))
    trials = {SEARCH: [trial(0, 1e-4, -0.5), failed(1, 0.1)], shaped: [trial(0, 1e-3, -1.5), trial(1, 1e-2, 1.2)]}
    assert best_parameters(trials) == {"a": 0.1, "strength": 1e-3}


def test_of_two_alike_the_more_accurate_is_chosen() -> None:
    assert best_parameters({SEARCH: [trial(0, 1e-3, 0.0, 0.8), trial(1, 1e-4, 0.0, 0.9)]}) == {"strength": 1e-4}


def test_nothing_can_be_chosen_where_every_trial_failed() -> None:
    with pytest.raises(GossamerError, match="No trial of ours-digits-l1"):
        best_parameters({SEARCH: [failed(0, 0.1)]})


def test_another_recipe_criterion_grid_or_budget_is_another_study() -> None:
    others = [
        replace(SEARCH, recipe=replace(QUICK, changes=(("momentum", 0.5),))),
        replace(SEARCH, criterion=SmallestWithinDrop(0.1)),
    ]
    others += [replace(SEARCH, strengths=(*SEARCH.strengths, 1.0)), replace(SEARCH, trials=SEARCH.trials - 1)]
    others += [replace(SEARCH, criterion=MostAccurateWithinSize(0.9, size)) for size in (0.5, 0.6)]
    assert len({SEARCH.study.name, *(other.study.name for other in others)}) == 7


def test_stored_trials_are_found_by_the_name_of_their_study(tmp_path: Path) -> None:
    where = workspace(tmp_path)
    where.tuning.mkdir()
    kept = [trial(0, 1e-4, -1.0), trial(1, 1e-1, 1.1)]
    write_trials(where.tuning / "digits.jsonl", kept)
    other = replace(SEARCH, criterion=SmallestWithinDrop(0.1))
    trials = finished_trials([SEARCH, other], where)
    assert trials == {SEARCH: kept, other: []}
    assert SEARCH.study.trials_left(trials[SEARCH]) == 0
    assert other.study.trials_left(trials[other]) > 0


def test_the_search_prefers_the_smaller_network_above_the_floor(tmp_path: Path) -> None:
    """Real trainings in real processes: a strength that empties the network falls below the floor."""
    messages: list[str] = []
    where = workspace(tmp_path)
    tune([SEARCH], where, messages.append)
    trials = finished_trials([SEARCH], where)
    assert {trial.parameters["strength"] for trial in trials[SEARCH]} == {1e-4, 1e-1}
    assert best_parameters(trials) == {"strength": 1e-4}
    ended = {trial.parameters["strength"]: trial for trial in trials[SEARCH]}
    assert ended[1e-1].value > 1
    assert ended[1e-4].value <= 0
    assert len(messages) == 2
    lines = (where.tuning / "digits.jsonl").read_text().splitlines()
    assert {json.loads(line)["study"] for line in lines} == {SEARCH.study.name}


@pytest.mark.usefixtures("in_this_process")
def test_for_a_size_nothing_is_trained_without_a_penalty_and_the_most_accurate_is_chosen(tmp_path: Path) -> None:
    where = workspace(tmp_path)
    sized = replace(SEARCH, criterion=MostAccurateWithinSize(flops_kept=1.0, params_kept=1.0))
    tune([sized], where)
    trials = finished_trials([sized], where)
    best = max(trials[sized], key=lambda one: one.figures["accuracy"])
    assert len(trials[sized]) == 2
    assert best_parameters(trials) == best.parameters
    assert [file.name for file in where.tuning.iterdir()] == ["digits.jsonl"]
