"""The four steps: imports point from later to earlier ones, a call runs each once, and visits few files."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gossamer
from gossamer.shrinking import api
from gossamer.shrinking.apply import Reference

STEPS = ["trace", "analyse", "decide", "apply", "api"]
FOLDER = Path(gossamer.__file__).parent / "shrinking"
EXAMPLE = torch.randn(2, 1, 6, 6, generator=torch.Generator().manual_seed(0))


def network() -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3, bias=False), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 2)
    ).eval()
    with torch.no_grad():
        model[0].weight[1], model[1].bias[1] = 0, 0.5
    return model


@pytest.mark.parametrize("step", STEPS)
def test_imports_point_to_earlier_steps(step: str) -> None:
    files = [FOLDER / "api.py"] if step == "api" else sorted((FOLDER / step).rglob("*.py"))
    assert files
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("gossamer.shrinking"):
                imported = [*node.module.split("."), *(alias.name for alias in node.names)][2]
                assert STEPS.index(imported) <= STEPS.index(step), f"{file} imports {node.module}"


def files_entered(call: Callable[[], object]) -> set[Path]:
    """The files of the library in which a function runs during a call."""
    library, found = FOLDER.parent, set()

    def profile(frame: Any, event: str, argument: object) -> None:
        found.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(before)
    return {Path(name) for name in found if Path(name).is_relative_to(library)}


@pytest.mark.parametrize("way", ["shrink", "plan and apply"])
def test_a_shrink_visits_at_most_twenty_two_files(way: str) -> None:
    model = network()
    ways = {
        "shrink": lambda: gossamer.shrink(model, EXAMPLE),
        "plan and apply": lambda: gossamer.plan(model, EXAMPLE).apply(),
    }
    files = files_entered(ways[way])
    assert FOLDER / "analyse" / "interpreter.py" in files
    assert len(files) <= 22, sorted(str(file) for file in files)


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a model is exported, analysed and verified from now on."""
    found: Counter[str] = Counter()

    def count(owner: Any, attribute: str, name: str) -> None:
        function = getattr(owner, attribute)

        def counted(*args: Any, **kwargs: Any) -> Any:
            found[name] += 1
            return function(*args, **kwargs)

        monkeypatch.setattr(owner, attribute, counted)

    count(torch.export, "export", "trace")
    count(api, "analyse", "analyse")
    count(Reference, "matches", "verify")
    return found


# The network folds a constant, so it is traced and analysed at the sizes of the example and at other sizes.
ONCE_PER_SIZE = {"trace": 2, "analyse": 2, "verify": 1}


def test_without_constants_to_fold_one_size_is_enough(counts: Counter[str]) -> None:
    model = network()
    with torch.no_grad():
        model[1].bias[1] = 0
    gossamer.shrink(model, EXAMPLE)
    assert counts == {"trace": 1, "analyse": 1, "verify": 1}


@pytest.mark.parametrize("form", ["auto", "module", "graph"])
def test_shrink_runs_every_step_once(counts: Counter[str], form: Any) -> None:
    gossamer.shrink(network(), EXAMPLE, form=form)
    assert counts == ONCE_PER_SIZE


@pytest.mark.parametrize("form", ["auto", "module", "graph"])
def test_a_plan_is_applied_without_another_step(counts: Counter[str], form: Any) -> None:
    plan = gossamer.plan(network(), EXAMPLE, form=form)
    for _ in range(2):
        plan.apply()
    assert counts == ONCE_PER_SIZE


def test_shrinking_in_place_runs_every_step_once(counts: Counter[str]) -> None:
    gossamer.shrink_(network(), EXAMPLE)
    assert counts == ONCE_PER_SIZE


def test_measuring_what_removal_leaves_runs_every_step_once(counts: Counter[str]) -> None:
    gossamer.measure(network(), EXAMPLE, removal=True)
    assert counts == ONCE_PER_SIZE


class HardCoded(nn.Module):
    """Has a size in its forward, and one for each sample, so that neither the class nor the batch can change."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.first(x)).view(4, 6))


def test_the_graph_form_uses_the_trace_of_the_module_form_where_the_batch_is_fixed(counts: Counter[str]) -> None:
    model = HardCoded()
    with torch.no_grad():
        model.first.weight[1:3], model.first.bias[1:3] = 0, 0
    plan = gossamer.plan(model, torch.randn(4, 3))
    assert plan.form == "graph"
    assert plan.apply().get_parameter("first.weight").shape == (4, 3)
    assert counts["trace"] == 1
