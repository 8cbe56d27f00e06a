from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from gossamer.errors import GossamerError
from gossamer_lab.paper.methods import METHODS, TABLE
from gossamer_lab.paper.outcomes import Job, Outcome
from gossamer_lab.paper.published import DATASETS, MEASURES, PUBLISHED
from gossamer_lab.paper.table import Row, average_ranks, by_method, floor_check, rows, to_json
from gossamer_lab.paper.table_sections import terminal_tables, to_markdown
from gossamer_lab.reporting.tables import print_tables
from gossamer_lab.training import RunResult, TrainingConfig

KEYS = [method.key for method in TABLE]
fractions = st.floats(0, 1, allow_subnormal=False)


def outcome(
    dataset: str, key: str, seed: int = 0, accuracy: float = 0.9, flops: float = 0.2, params: float = 0.1, **setting
) -> Outcome:
    config = TrainingConfig(dataset, METHODS[key].regularizer, seed=seed, **setting)
    total, small = {"weights": 1_000, "macs": 10_000}, {"weights": 200 + 100 * seed, "macs": 4_000, "file_bytes": 900}
    result = RunResult(
        dataset, config.regularizer, config.strength, seed, 10, accuracy, params, flops, 1.0, {"total": total}, small
    )
    return Outcome(Job(key, config), result, ())


def row(dataset: str, method: str, accuracy: float = 0.9, flops: float = 0.2, params: float = 0.1) -> Row:
    return Row(dataset, method, 3, accuracy, 0.001, flops, 0.01, params, 0.01, 0.3, 0.4, 1234, 1e-4, None, None, 0.0)


def whole_table() -> list[Row]:
    everything = [row(dataset, key, 0.9 + 0.01 * n) for dataset in DATASETS for n, key in enumerate((*KEYS, "dense"))]
    return [replace(line, flops_kept=0.001) if line.method == "itl" else line for line in everything]


def test_a_row_holds_mean_and_sample_deviation_over_the_seeds() -> None:
    setting = {"strength": 3e-4, "a": 0.02, "s": 0.3, "cost_exponent": 0.5}
    values = [(0.97, 0.20, 0.10), (0.98, 0.30, 0.10), (0.99, 0.10, 0.40)]
    made = [outcome("mnist", "itl", seed, *figures, **setting) for seed, figures in enumerate(values)]
    (line,) = rows(made)
    assert (line.dataset, line.method, line.seeds) == ("mnist", "itl", 3)
    assert (line.strength, line.a, line.s, line.cost_exponent) == (3e-4, 0.02, 0.3, 0.5)
    assert (line.accuracy, line.accuracy_std) == pytest.approx((0.98, 0.01))
    assert (line.flops_kept, line.flops_kept_std) == pytest.approx((0.2, 0.1))
    assert (line.params_kept, line.params_kept_std) == pytest.approx((0.2, math.sqrt(0.03)))
    assert (line.small_params, line.small_flops, line.small_bytes) == pytest.approx((0.3, 0.4, 900))


def test_one_seed_has_no_deviation() -> None:
    (line,) = rows([outcome("mnist", "l1")])
    assert (line.accuracy_std, line.flops_kept_std, line.params_kept_std) == (0.0, 0.0, 0.0)


@given(st.permutations([(dataset, key) for dataset in (*DATASETS, "digits") for key in (*KEYS, "dense")]))
def test_rows_stand_in_the_order_of_the_paper_whatever_ended_first(places: list[tuple[str, str]]) -> None:
    made = rows([outcome(*place) for place in places])
    assert [(line.dataset, line.method) for line in made] == [
        (dataset, key) for dataset in (*DATASETS, "digits") for key in (*KEYS, "dense")
    ]


def test_seeds_are_gathered_in_their_order() -> None:
    groups = by_method([outcome("mnist", "l1", seed) for seed in (2, 0, 1)])
    assert [each.job.config.seed for each in groups["mnist", "l1"]] == [0, 1, 2]


def test_outcomes_that_do_not_fit_together_are_refused() -> None:
    first = outcome("mnist", "l1", 0, strength=1e-4)
    with pytest.raises(GossamerError, match=r"mnist, l1, seed 0 occurs twice"):
        rows([first, first])
    with pytest.raises(GossamerError, match=r"seed 1 has another setting than seed 0: strength 0.001 \(not 0.0001\)"):
        rows([first, outcome("mnist", "l1", 1, strength=1e-3)])
    with pytest.raises(GossamerError, match=r"received an outcome of '0\.01'"):
        rows([replace(first, job=Job("0.01", first.job.config))])
    with pytest.raises(GossamerError, match="validation images"):
        rows([outcome("mnist", "l1", validation_fraction=0.1)])


def test_settings_may_differ_between_methods_and_data_sets() -> None:
    assert len(rows([outcome("mnist", "l1", strength=1e-4), outcome("sdd", "l1", strength=1e-3)])) == 2
    assert len(rows([outcome("mnist", "l1", strength=1e-4), outcome("mnist", "sgl", strength=1e-3)])) == 2


def test_ranks_by_hand() -> None:
    table = [
        *(row("mnist", key, accuracy, flops=0.5) for key, accuracy in zip(KEYS, (0.9, 0.8, 0.9, 0.7), strict=True)),
        *(row("sdd", key, 0.5, flops) for key, flops in zip(KEYS, (0.4, 0.3, 0.2, 0.1), strict=True)),
        row("mnist", "dense", 1.0, 0.0),  # not ranked
        row("cifar-10", "itl", 0.1, 1.0),  # alone, so left out
    ]
    ranks = average_ranks(table)
    assert [ranks[key]["accuracy"] for key in KEYS] == [2.0, 2.75, 2.0, 3.25]
    assert [ranks[key]["flops_kept"] for key in KEYS] == [3.25, 2.75, 2.25, 1.75]
    assert [ranks[key]["params_kept"] for key in KEYS] == [2.5] * 4
    assert average_ranks(table[:3]) == {}


@given(st.lists(st.tuples(*[fractions] * 4), min_size=1, max_size=5))
def test_ranks_of_a_measure_always_add_up_to_the_same(table: list[tuple[float, ...]]) -> None:
    made = [
        row(dataset, key, accuracy, 1 - accuracy)
        for dataset, line in zip(DATASETS, table, strict=False)
        for key, accuracy in zip(KEYS, line, strict=True)
    ]
    ranks = average_ranks(made)
    for measure in MEASURES:
        of_measure = [ranks[key][measure.key] for key in KEYS]
        assert sum(of_measure) == pytest.approx(10)
        assert all(1 <= rank <= 4 for rank in of_measure)


def test_json_holds_the_four_methods_under_the_agreed_names() -> None:
    content = to_json(whole_table())
    assert list(content) == ["rows"]
    assert [(line["dataset"], line["method"]) for line in content["rows"]] == [(d, k) for d in DATASETS for k in KEYS]
    for line in content["rows"]:
        assert list(line) == [
            "dataset",
            "method",
            "seeds",
            "accuracy",
            "accuracy_std",
            "flops_kept",
            "flops_kept_std",
            "params_kept",
            "params_kept_std",
            "small_flops",
            "small_params",
            "small_bytes",
        ]
        assert type(line["seeds"]) is int
    assert json.loads(json.dumps(content)) == content


def test_floor_compares_with_the_best_accuracy_of_all_and_with_its_own_sizes() -> None:
    floor = floor_check([row("mnist", "itl", 0.9882, 0.1742 / 4, 0.17), row("sdd", "itl", 0.99, 0.1584, 0.1608)])
    assert floor is not None
    mnist, sdd = floor.lines
    assert (mnist.accuracy_holds, mnist.flops_hold, mnist.params_hold) == (True, True, False)
    assert (sdd.accuracy_holds, sdd.flops_hold, sdd.params_hold) == (False, True, True)
    assert (mnist.accuracy_floor, mnist.flops_ceiling, mnist.params_ceiling) == (0.9882, 0.1742, 0.1601)
    assert floor.flops_ratio == pytest.approx(0.5)
    assert floor.params_ratio == pytest.approx(math.sqrt(0.17 / 0.1601))


def test_floor_needs_integrated_tl1_on_a_data_set_of_the_paper() -> None:
    assert floor_check([row("mnist", "l1"), row("digits", "itl")]) is None
    collapsed = floor_check([row("mnist", "itl", 0.1, 0.0, 0.0)])
    assert collapsed is not None
    assert (collapsed.flops_ratio, collapsed.lines[0].accuracy_holds) == (0.0, False)


def test_markdown_sets_ours_beside_the_published() -> None:
    text = to_markdown(whole_table())
    mnist = text.split("### ")[1]
    assert mnist.startswith("MNIST\n")
    assert "| l1 | λ 0.0001 | 3 | 90.00 ± 0.10 | 97.49 ± 0.18 | 20.00 ± 1.00 | 68.59 ± 2.15 |" in mnist
    assert "| integrated Tl1 | λ 0.0001 | 3 | **93.00 ± 0.10** | 97.32 ± 0.07 | **0.100 ± 1.000** |" in mnist
    assert "| no penalty | λ 0.0001 | 3 | 94.00 ± 0.10 | - |" in mnist
    (sdd,) = (part for part in text.split("### ") if part.startswith("SDD"))
    assert "| SGL | λ 0.0001 | 3 | 91.00 ± 0.10 | - |" in sdd


def test_markdown_ends_with_what_is_left_dense_ranks_and_floor() -> None:
    text = to_markdown(whole_table())
    small, ranks, floor = text.split("### ")[-3:]
    assert "| MNIST | SGL | 40.00 | 30.00 | 1.2 |" in small
    assert "| integrated Tl1 | **1** | 2.2 | **1** | 1 | **2.5** | 1.4 |" in ranks
    assert "| MNIST | 93.00 ✗ | 98.82 | 0.100 ✓ | 17.42 | 10.00 ✓ | 16.01 |" in floor
    ratio = math.prod(0.001 / PUBLISHED[dataset, "itl"].flops_kept for dataset in DATASETS) ** 0.2
    assert f"over 5 data sets: MACs {ratio:.3f}" in floor


def test_markdown_is_made_of_whole_tables() -> None:
    for part in to_markdown(whole_table()).split("### ")[1:]:
        lines = [line for line in part.splitlines() if line.startswith("|")]
        assert len({line.count("|") for line in lines}) == 1


def test_a_part_of_the_table_is_written_too() -> None:
    text = to_markdown([row("digits", "l1"), row("mnist", "l1")])
    assert text.count("### ") == 2
    assert "### digits" not in text
    assert to_markdown([]).count("### ") == 0


def test_the_terminal_shows_all_of_it_in_80_columns() -> None:
    console = Console(width=80)
    with console.capture() as capture:
        print_tables(console, terminal_tables(whole_table()))
    text = capture.get()
    assert "…" not in text
    assert "93.00±0.10 (97.32)" in text
    assert "0.100±1.000 (17.42)" in text
    assert "Integrated Tl1 against the paper" in text
    assert max(len(line) for line in text.splitlines()) <= 80
