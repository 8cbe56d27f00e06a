"""The README's figures are those of the committed results, and its commands exist."""

import json
import re
import subprocess
import sys
from pathlib import Path
from statistics import mean, stdev

import pytest
import torch

import gossamer
from gossamer_lab.networks import build
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


def lenet(units=(6, 12, 50)):
    """LeNet-5 in which all but so many units of each hidden layer are dead."""
    model = build("mnist", torch.Generator().manual_seed(0)).eval()
    with torch.no_grad():
        for layer, kept in zip((model.conv1, model.conv2, model.hidden), units, strict=True):
            layer.weight[kept:] = 0
            layer.bias[kept:] = 0
    return model


def test_the_printed_plan_is_that_of_the_library():
    assert f"```\n{gossamer.plan(lenet(), torch.randn(1, 1, 28, 28))}\n```" in README


def test_time_and_bytes_are_those_of_the_benchmark():
    rows = json.loads((ROOT / "benchmarks/results/inference.json").read_text())["rows"]
    (row,) = [r for r in rows if (r["network"][:7], r["batch"], r["engine"]) == ("LeNet-5", 64, "ONNX Runtime")]
    assert "6-12-50 of 20-50-500" in row["network"]
    assert f"{row['ms']:.2f} ms instead of {row['ms'] * row['dense']:.2f} ms in ONNX Runtime" in " ".join(
        README.split()
    )
    plan = gossamer.plan(lenet(), torch.randn(1, 1, 28, 28))
    kilobytes = [4 * count / 1000 for count in (plan.weights_before, plan.weights_after)]
    assert f"{kilobytes[0]:,.0f} kB to {kilobytes[1]:.0f} kB of parameters" in README


CODE = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1]

# The library alone: everything that the extras install is hidden.
ALONE = """
import importlib.util
import sys

HIDDEN = set("matplotlib onnx onnxruntime onnxscript optuna plotly pooch requests rich sklearn typer".split())


class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in HIDDEN:
            raise ModuleNotFoundError(name)


find = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name.split(".")[0] in HIDDEN else find(name, package)
sys.meta_path.insert(0, Hide())
"""
SETTING = """
import torch
from torch import nn

model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
example = torch.randn(2, 6)
"""
LOOP = """
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(16, 6)).square().mean().backward()
    optimizer.step()
"""


def test_the_code_runs_without_the_extras(tmp_path):
    program = ALONE + SETTING + CODE.replace("...\n", LOOP)
    result = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "MACs" in result.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["net.safetensors"]


def test_the_command_without_its_extra_says_how_to_get_it():
    hidden = ALONE + "from gossamer_lab.__main__ import main\nmain()\n"
    result = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert "pip install 'gossamer[lab]'" in result.stderr


def test_the_figures_of_the_documentation_can_be_drawn(tmp_path):
    script = ROOT / "docs/images/make.py"
    subprocess.run([sys.executable, str(script), str(tmp_path)], check=True, capture_output=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a.png",
        "density.png",
        "s.png",
        "strength.png",
        "unit.png",
    ]


def anchors(page):
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.name
)
def test_links_of_the_documentation_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
        if target.startswith("http"):
            continue
        linked = page.parent / target if target else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), f"{target}#{anchor}"
    if page.parent.name == "docs" and page.name != "README.md":
        assert f"]({page.name})" in (ROOT / "docs/README.md").read_text(), "it is not in the index"
