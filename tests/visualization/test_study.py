"""A page on many trainings: the trade-off, what is best, and the table of all runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gossamer.visualization import Page, Run, Series, Study, page_html
from gossamer.visualization.study_summary import study_figures, study_sentences
from gossamer.visualization.tradeoff import study_chart, study_table

from .conftest import history


def trial(number: int, accuracy: float | None, kept: float | None, **others: float) -> Run:
    return Run(f"trial {number}", accuracy, kept, settings=(("strength", f"{number}e-3"),), **others)


@pytest.fixture
def study() -> Study:
    runs = (
        trial(0, 0.98, 0.5), trial(1, 0.975, 0.1), trial(2, 0.96, 0.2), trial(3, 0.9, 0.05), trial(4, 0.1, 0.0),
        trial(5, None, None),
    )  # fmt: skip
    return Study((Series("trials", runs),), "trial", ("One trial was given up early.",))


def test_the_summary_names_the_best_and_the_smallest_that_is_nearly_as_good(study: Study) -> None:
    page = Page("a sweep", study=study, score="validation accuracy")
    assert study_sentences(page, study) == [
        "The best validation accuracy is 98.00%, with 50.00% of the weights (trial 0, strength 0e-3).",
        "Within one percentage point of it, the smallest network keeps 10.00% of the weights and has 97.50% "
        "(trial 1, strength 1e-3).",
        "No weight is left in 1 more, which are in the table and not in the chart.",
        "One trial was given up early.",
    ]
    assert [(one.name, one.value) for one in study_figures(page, study)] == [
        ("Best validation accuracy", "98.00%"), ("Smallest within 1 point", "10.00%"), ("Trials", "4"),
    ]  # fmt: skip


def test_the_table_has_every_run_and_marks_the_front(study: Study) -> None:
    rows = {row[0]: row[1:] for row in study_table(study, "accuracy").rows}
    assert rows["trial 1"] == ["1e-3", "97.50%", "10.00%", "yes"]
    assert rows["trial 2"] == ["2e-3", "96.00%", "20.00%", ""]
    assert rows["trial 5"] == ["5e-3", "–", "–", ""]
    assert len(rows) == 6


def test_a_size_that_every_run_has_can_be_chosen(study: Study) -> None:
    chart = study_chart(study, "accuracy")
    assert chart is not None
    assert list(chart.figures) == ["weights kept"]
    full = tuple(replace(run, flops_kept=0.3, dense_flops=0.4) for run in study.series[0].runs)
    chart = study_chart(Study((Series("path", full, joined=True),), "target"), "accuracy")
    assert chart is not None
    assert list(chart.figures) == ["weights kept", "MACs kept", "MACs after shrink"]
    points, _ = chart.figures["weights kept"]["data"]
    assert points["mode"] == "lines+markers"
    assert points["x"] == [50.0, 10.0, 20.0, 5.0]
    assert "Size" in chart.html()


def test_a_study_without_results_says_so(study: Study) -> None:
    none = Study((Series("trials", (trial(5, None, None),)),), "trial")
    page = Page("a sweep", study=none)
    assert study_chart(none, "accuracy") is None
    assert study_sentences(page, none) == ["No trial has a result."]
    assert study_figures(page, none) == []


@pytest.mark.usefixtures("without_bundle")
def test_sections_in_order(study: Study) -> None:
    html = page_html(Page("a sweep", study=study, runs=(Run("trial 0", 0.98, 0.5, history=history()),)))
    order = [html.index(f'<section id="{name}"') for name in ("summary", "trade-off", "runs", "training")]
    assert order == sorted(order)
    assert 'id="layers"' not in html
