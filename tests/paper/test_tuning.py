from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gossamer.errors import GossamerError
from gossamer.paper.compared import ITL, L1, TABLE, Compared
from gossamer.paper.recipes import OURS, PLAIN
from gossamer.paper.runner import Place
from gossamer.paper.searches import DATASETS, PLAIN_DATASETS, search
from gossamer.paper.tuning import Search, choose, tune
from gossamer.sweeps import Trial, write_trials
from gossamer.training import defaults

QUICK = replace(OURS, quick=True)
SEARCH = Search("digits", L1, QUICK, (("strength", (1e-4, 1e-1)),), drop=0.5, validation=0.2)


def trial(number: int, strength: float, accuracy: float, kept: float) -> Trial:
    figures = {"accuracy": accuracy, "flops_kept": kept, "params_kept": kept, "accuracy_dense": 0.95}
    return Trial(SEARCH.study.name, number, {"strength": strength}, 0.0, figures, 1.0)


def failed(number: int, strength: float) -> Trial:
    return Trial(SEARCH.study.name, number, {"strength": strength}, float("inf"), {}, 1.0, "diverged")


def place(folder: Path) -> Place:
    return Place(folder, folder / "tuning", folder / "runs", workers=1)


@pytest.mark.parametrize("dataset", DATASETS)
def test_every_method_has_the_same_budget(dataset: str) -> None:
    assert len({search(dataset, compared, OURS).study.trials for compared in TABLE}) == 1


@pytest.mark.parametrize("dataset", PLAIN_DATASETS)
def test_every_method_has_the_same_budget_in_the_plain_recipe(dataset: str) -> None:
    assert len({search(dataset, compared, PLAIN).study.trials for compared in TABLE}) == 1


def test_the_smallest_above_the_floor_is_chosen_and_what_was_not_tuned_comes_along() -> None:
    fixed = replace(SEARCH, compared=ITL, fixed=(("a", 0.1),), drop=0.01)
    trials = [trial(0, 1e-4, 0.95, 0.5), trial(1, 1e-3, 0.945, 0.1), trial(2, 1e-2, 0.93, 0.01), failed(3, 0.1)]
    assert choose(fixed, trials) == {"a": 0.1, "strength": 1e-3}


def test_the_most_accurate_is_chosen_where_none_is_above_the_floor() -> None:
    trials = [trial(0, 1e-4, 0.90, 0.5), trial(1, 1e-3, 0.91, 0.9)]
    assert choose(replace(SEARCH, drop=0.01), trials) == {"strength": 1e-3}


def test_nothing_can_be_chosen_where_every_trial_failed() -> None:
    with pytest.raises(GossamerError, match="No trial of ours-digits-l1"):
        choose(SEARCH, [failed(0, 0.1)])


def test_another_recipe_is_another_study() -> None:
    assert SEARCH.study.name != replace(SEARCH, recipe=replace(QUICK, changes=(("momentum", 0.5),))).study.name


def test_trials_that_are_kept_are_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = place(tmp_path)
    where.tuning.mkdir()
    kept = [trial(0, 1e-4, 0.9, 0.5), trial(1, 1e-1, 0.1, 0.1)]
    write_trials(where.tuning / "digits.jsonl", kept)
    monkeypatch.setattr("gossamer.paper.tuning.run_studies", None)
    assert tune([SEARCH], where)[SEARCH] == kept


def test_the_search_prefers_the_smaller_network_above_the_floor(tmp_path: Path) -> None:
    """Real trainings in real processes: a strength that empties the network falls below the floor."""
    told: list[str] = []
    where = place(tmp_path)
    trials = tune([SEARCH], where, told.append)[SEARCH]
    assert {trial.parameters["strength"] for trial in trials} == {1e-4, 1e-1}
    assert choose(SEARCH, trials) == {"strength": 1e-4}
    ended = {trial.parameters["strength"]: trial for trial in trials}
    assert ended[1e-1].value > 1
    assert ended[1e-4].value <= 0
    assert len(told) == 2
    lines = (where.tuning / "digits.jsonl").read_text().splitlines()
    assert {json.loads(line)["study"] for line in lines} == {SEARCH.study.name}


@pytest.mark.parametrize("dataset", ["mnist", "pendigits"])
@pytest.mark.parametrize("compared", [ITL, L1])
def test_the_command_trains_with_what_was_chosen(dataset: str, compared: Compared) -> None:
    results = Path(__file__).parents[2] / "experiments"
    where = Place(results, results / "tuning", results / "nowhere", may_train=False)
    one = search(dataset, compared, OURS)
    chosen = choose(one, tune([one], where)[one])
    assert chosen.items() <= defaults(dataset, compared.regularizer).items()
