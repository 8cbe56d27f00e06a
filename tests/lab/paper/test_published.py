from __future__ import annotations

import pytest

from gossamer_lab.paper.methods import TABLE
from gossamer_lab.paper.published import (
    AVERAGE_RANKS,
    DATASETS,
    FILTER_SPARSITY,
    INTERPRETATION,
    MEASURES,
    PUBLISHED,
    REFERENCES,
    Published,
)
from gossamer_lab.paper.table import Row, average_ranks, best_published_accuracy
from gossamer_lab.training import REGULARIZERS

KEYS = [method.key for method in TABLE]


def ranks_with(sgl_on_sdd: Published) -> dict[tuple[str, str], float]:
    """Average ranks of the published table with figures in the place of those that it does not have."""
    table = {**PUBLISHED, ("sdd", "sgl"): sgl_on_sdd}
    rows = [
        Row(
            dataset,
            method,
            3,
            **vars(figures),
            small_flops=1,
            small_params=1,
            small_bytes=1,
            strength=0.0,
            a=None,
            s=None,
            cost_exponent=0.0,
        )
        for (dataset, method), figures in table.items()
    ]
    ranks = average_ranks(rows)
    return {(method, measure.key): ranks[method][measure.key] for method in KEYS for measure in MEASURES}


def published_ranks() -> dict[tuple[str, str], float]:
    return {(method, measure.key): AVERAGE_RANKS[method][measure.key] for method in KEYS for measure in MEASURES}


def test_only_sgl_on_sdd_is_missing() -> None:
    everything = {(dataset, method) for dataset in DATASETS for method in KEYS}
    assert everything - set(PUBLISHED) == {("sdd", "sgl")}
    assert set(PUBLISHED) <= everything


@pytest.mark.parametrize("place", PUBLISHED, ids=str)
def test_figures_are_fractions(place: tuple[str, str]) -> None:
    for measure in MEASURES:
        mean, std = getattr(PUBLISHED[place], measure.key), getattr(PUBLISHED[place], f"{measure.key}_std")
        assert 0 < std < mean < 1


def test_average_ranks_follow_when_the_missing_row_is_third_in_accuracy_and_last_in_size() -> None:
    between_l1_and_itl = Published(0.986, 0.0, 1.0, 0.0, 1.0, 0.0)
    assert ranks_with(between_l1_and_itl) == pytest.approx(published_ranks())


def test_two_average_ranks_do_not_follow_when_the_missing_row_is_last_in_all() -> None:
    ours, theirs = ranks_with(Published(0.0, 0.0, 1.0, 0.0, 1.0, 0.0)), published_ranks()
    different = {place: ours[place] for place in ours if ours[place] != pytest.approx(theirs[place])}
    assert different == pytest.approx({("l1", "accuracy"): 2.8, ("sgl", "accuracy"): 2.6})


def test_four_average_ranks_do_not_follow_when_the_missing_row_is_left_out() -> None:
    wrong = 0
    for measure in MEASURES:
        taken: dict[str, list[int]] = {method: [] for method in KEYS}
        for dataset in DATASETS:
            present = [method for method in KEYS if (dataset, method) in PUBLISHED]
            present.sort(key=lambda m: getattr(PUBLISHED[dataset, m], measure.key), reverse=measure.more_is_better)
            for rank, method in enumerate(present, start=1):
                taken[method].append(rank)
        for method, ranks in taken.items():
            wrong += sum(ranks) / len(ranks) != pytest.approx(AVERAGE_RANKS[method][measure.key])
    assert wrong == 4


@pytest.mark.parametrize(
    ("dataset", "best"),
    [("mnist", 0.9882), ("fashion-mnist", 0.8947), ("sdd", 0.9909), ("pendigits", 0.9745), ("cifar-10", 0.7797)],
)
def test_best_accuracy_is_the_one_in_bold_face(dataset: str, best: float) -> None:
    assert best_published_accuracy(dataset) == best


def test_names_are_those_of_configurations_and_methods() -> None:
    assert set(INTERPRETATION) <= set(REGULARIZERS)
    assert list(FILTER_SPARSITY) == KEYS
    assert list(AVERAGE_RANKS) == KEYS


@pytest.mark.parametrize("reference", [line for line in REFERENCES if line.units], ids=lambda line: line.method)
def test_kept_units_explain_the_kept_parameters(reference) -> None:
    # LeNet-5-Caffe: 5x5 filters, then 16 places of each channel; the third number counts inputs of the dense layer.
    first, second, inputs, hidden = reference.units
    weights = 25 * first + 25 * first * second + inputs * hidden + 10 * hidden
    assert weights / 430_500 == pytest.approx(reference.params_kept, rel=0.06)


def test_references_without_units_are_the_unstructured_ones() -> None:
    assert [line.method for line in REFERENCES if not line.units] == ["Sparse VD", "Sparse VD"]
    assert 1 / REFERENCES[3].params_kept == pytest.approx(280, rel=0.02)
    assert 1 / REFERENCES[4].params_kept == pytest.approx(68, rel=0.02)
