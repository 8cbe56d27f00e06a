"""Every benchmark gives a table of plain values that survives JSON; no test looks at a clock."""

import math
from pathlib import Path

import pytest
import torch
from torch import nn

from gossamer.errors import GossamerError
from gossamer.penalties import L1, Group, TransformedL1
from gossamer.proximal import attach
from gossamer.regularizers import integrated_tl1
from gossamer_lab.bench import BENCHMARKS
from gossamer_lab.bench.adaptive_step import adaptive_step
from gossamer_lab.bench.inference import CASES, inference
from gossamer_lab.bench.memory import peak_extra_bytes
from gossamer_lab.bench.models import Workload, lenet, perceptron, residual_network, transformer
from gossamer_lab.bench.proximal_step import proximal_step
from gossamer_lab.bench.published import published_integrated_tl1_
from gossamer_lab.bench.result import Machine, Result, page_section, read_result, result_file
from gossamer_lab.bench.run import load_benchmark, run
from gossamer_lab.bench.scaling import scaling
from gossamer_lab.bench.shrink import shrink_cost
from gossamer_lab.bench.timing import Timing, time_interleaved
from gossamer_lab.bench.torch_compile import _root_polynomial, _transformed_l1, torch_compile
from gossamer_lab.bench.training_loop import training_loop
from gossamer_lab.bench.training_step import training_step
from gossamer_lab.bench.whole_training import whole_training
from gossamer_lab.reporting.page import filled

ROOT = Path(__file__).parents[3]

SMALL = {
    "proximal-step": lambda: proximal_step(rows=20, columns=12, seconds=0.0),
    "training-step": lambda: training_step([Workload("small", lambda: nn.Linear(5, 10), (4, 5))], seconds=0.0),
    "adaptive-step": lambda: adaptive_step(widths=[4], seconds=0.0),
    "inference": lambda: inference(CASES[:1], batches=(1,), seconds=0.0),
    "shrink": lambda: shrink_cost([10_000]),
    "whole-training": lambda: whole_training(epochs=1, width=2),
    "scaling": lambda: scaling(weights=[1000], tensors=[3], in_tensors=300, seconds=0.0),
    "training-loop": lambda: training_loop(epochs=2),
    "torch-compile": lambda: torch_compile(rows=20, columns=12, seconds=0.0),
}


@pytest.mark.parametrize("name", SMALL)
def test_every_benchmark(name, tmp_path):
    result = SMALL[name]()
    assert result.name == name
    assert len({tuple(row) for row in result.rows}) == 1, "the rows have different columns"
    for row in result.rows:
        assert all(value is None or isinstance(value, str | int | float) for value in row.values())
    assert read_result(result.write(tmp_path)) == result
    assert list(result.table().columns) == list(result.rows[0])
    committed = read_result(result_file(name, ROOT / "benchmarks" / "results"))
    assert committed.name == name
    assert committed.note == result.note
    assert list(committed.rows[0]) == list(result.rows[0])


def test_all_benchmarks_are_small_here_too():
    assert set(SMALL) == set(BENCHMARKS)
    assert all(callable(load_benchmark(name)) for name in BENCHMARKS)


def test_peak_extra_bytes():
    extra = peak_extra_bytes(lambda: torch.ones(4_000_000).sum())
    assert extra is None or 15_000_000 < extra < 40_000_000


def test_the_fused_step_needs_no_memory():
    model = nn.Linear(2000, 2000, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    attach(optimizer, integrated_tl1(model, 1e-4), compile=True)
    model.weight.grad = torch.zeros(1).expand_as(model.weight)
    optimizer.step()
    extra = peak_extra_bytes(optimizer.step)
    assert extra is None or extra <= 160_000 + 100_000  # 1 % of the weights; the system counts in pages


def test_timings_are_interleaved():
    calls = []
    times = time_interleaved({"x": lambda: calls.append("x"), "y": lambda: calls.append("y")}, seconds=0.0, least=20)
    turns = [calls[first : first + 2] for first in range(0, len(calls), 2)]
    assert len(turns) == 21  # one that does not count
    assert all(sorted(turn) == ["x", "y"] for turn in turns)
    assert {tuple(turn) for turn in turns} == {("x", "y"), ("y", "x")}  # in either order
    assert times["x"].runs == times["y"].runs == 20


def test_timing_summarises():
    assert Timing.of([3.0, 1.0, 2.0, 5.0, 4.0]) == Timing(median=3.0, low=2.0, high=4.0, runs=5)
    assert Timing.of([2.0]) == Timing(2.0, 2.0, 2.0, 1)


def test_the_published_formula_is_the_step_we_take():
    torch.manual_seed(0)
    weight = torch.randn(30, 20, dtype=torch.float64)
    ours = Group(L1()).prox(TransformedL1(1.0).prox(weight, 0.05), 0.05)
    published_integrated_tl1_(weight, 0.1, 1.0)
    assert torch.allclose(weight, ours, atol=1e-12)


def test_inductor_is_given_the_same_arithmetic():
    torch.manual_seed(0)
    weight, step = torch.randn(30, 20), torch.tensor(0.1, dtype=torch.float64)
    ours = TransformedL1(1.0).kernel(weight, step)
    assert torch.allclose(_transformed_l1(weight, step, _root_polynomial()), ours, rtol=1e-6, atol=1e-7)


def test_networks_have_the_sizes_that_they_claim():
    def weights(model):
        return sum(parameter.numel() for parameter in model.parameters() if parameter.dim() > 1)

    assert weights(lenet()) == 430_500
    assert 11_100_000 < weights(residual_network()) < 11_200_000
    assert weights(perceptron(100)) == 784 * 100 + 100 * 100 + 100 * 10
    assert round(weights(transformer()) / 1e6, 1) == 18.9


def test_run_writes_and_checks(tmp_path, monkeypatch):
    machine = Machine.here()
    result = Result("training-step", "title", "note", machine, ({"name": "x", "value": 1.5},))
    monkeypatch.setattr("gossamer_lab.bench.training_step.training_step", lambda: result)
    assert list(run(["training-step"], tmp_path)) == [result]
    assert read_result(tmp_path / "training_step.json") == result
    with pytest.raises(GossamerError, match=r"Unknown benchmark 'z'\. Available: proximal-step, "):
        list(run(["z"]))


def test_a_file_that_is_no_result(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"rows": []}')
    with pytest.raises(GossamerError, match="is not a result of `gossamer bench`"):
        read_result(path)


def test_numbers_are_readable():
    row = {"name": "x", "large": 12345.6, "small": 0.0123456, "count": 1_000_000, "none": None, "nan": math.nan}
    line = Result("a", "", "", Machine.here(), (row,)).table().markdown().splitlines()[2]
    assert line == "| x | 12,346 | 0.0123 | 1,000,000 |  | nan |"


def test_a_page_gets_its_tables_from_the_files(tmp_path):
    Result("training-step", "title", "A note.", Machine.here(), ({"name": "x", "value": 1.5},)).write(tmp_path)
    page = (
        "<!-- begin training-step -->\nold\n<!-- end training-step -->\n\n<!-- begin scaling -->\n<!-- end scaling -->"
    )
    once = filled(page, page_section(tmp_path))
    for part in ("Title.", "| x | 1.5 |", "A note. Measured on: ", "(not measured yet: `gossamer bench scaling`)"):
        assert part in once
    assert "old" not in once
    assert once == filled(once, page_section(tmp_path))


def test_the_page_on_performance_shows_the_committed_results():
    page = (ROOT / "docs" / "performance.md").read_text()
    assert page == filled(page, page_section(ROOT / "benchmarks" / "results"))
    assert all(f"<!-- begin {name} -->" in page for name in BENCHMARKS)
