"""The README's figures are those of the committed results, and its commands exist."""

import json
import re
from pathlib import Path
from statistics import mean, stdev

from gossamer_lab.paper.outcomes import read_outcomes
from gossamer_lab.paper.published import DATASET_LABELS, DATASETS
from gossamer_lab.paper.table import floor_check, rows

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_the_table_of_the_demo_is_that_of_the_results():
    results = [json.loads(line) for line in (ROOT / "experiments/digits/results.jsonl").read_text().splitlines()]
    for name, label in (("integrated-tl1", "integrated transformed l1"), ("l1", "l1"), ("none", "no penalty")):
        runs = [run for run in results if run["regularizer"] == name]
        assert {run["seed"] for run in runs} == {0, 1, 2}
        accuracy = [100 * run["accuracy"] for run in runs]
        kept, flops = (100 * mean(run[key] for run in runs) for key in ("params_kept", "flops_kept"))
        small = mean(run["small"]["weights"] for run in runs) / runs[0]["measurement"]["total"]["weights"]
        row = (
            f"| {label} | {mean(accuracy):.2f} ± {stdev(accuracy):.2f} % | {kept:.1f} % | {flops:.1f} % "
            f"| {100 * small:.1f} % |"
        )
        assert row in README, row


def test_the_table_of_the_paper_is_that_of_the_results():
    outcomes = [one for dataset in DATASETS for one in read_outcomes(ROOT / f"experiments/table/{dataset}.jsonl")]
    floor = floor_check(rows(outcomes))
    assert floor is not None
    assert [line.dataset for line in floor.lines] == list(DATASETS)
    for line in floor.lines:
        pairs = (
            (line.accuracy, line.accuracy_floor),
            (line.flops_kept, line.flops_ceiling),
            (line.params_kept, line.params_ceiling),
        )
        cells = [f"{100 * ours:.{2 if ours >= 0.01 else 3}f} ({100 * theirs:.2f})" for ours, theirs in pairs]
        row = " | ".join([DATASET_LABELS[line.dataset], *cells])
        assert f"| {row} |" in README, row


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert target.startswith("http") or (ROOT / target).exists(), target


def test_the_two_commands_are_there():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"make (\w+)", README):
        assert f"\n{target}:" in makefile, target
