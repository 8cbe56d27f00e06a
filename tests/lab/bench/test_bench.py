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
from gossamer_lab.bench import BENCHMARKS, native
from gossamer_lab.bench.adaptive_step import adaptive_step
from gossamer_lab.bench.density import Layer, crossover, density_sweep
from gossamer_lab.bench.engines import in_pytorch
from gossamer_lab.bench.inference import CASES, inference
from gossamer_lab.bench.journal import Journal
from gossamer_lab.bench.memory import peak_extra_bytes
from gossamer_lab.bench.models import Workload, lenet, perceptron, residual_network, transformer
from gossamer_lab.bench.native import native_networks
from gossamer_lab.bench.networks import NETWORKS, SparseNetwork
from gossamer_lab.bench.page import page_section
from gossamer_lab.bench.proximal_step import proximal_step
from gossamer_lab.bench.published import published_integrated_tl1_
from gossamer_lab.bench.result import Machine, Result, read_result, result_file
from gossamer_lab.bench.run import load_benchmark, run
from gossamer_lab.bench.scaling import scaling
from gossamer_lab.bench.shrink import shrink_cost
from gossamer_lab.bench.threads import two_threads
from gossamer_lab.bench.timing import Timing, time_bursts, time_interleaved
from gossamer_lab.bench.torch_compile import _root_polynomial, _transformed_l1, torch_compile
from gossamer_lab.bench.training_loop import training_loop
from gossamer_lab.bench.training_step import training_step
from gossamer_lab.bench.unit_step import unit_step
from gossamer_lab.bench.whole_training import whole_training
from gossamer_lab.reporting.page import filled

ROOT = Path(__file__).parents[3]


def _linear():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 10)).eval()


_SMALL_NETWORK = SparseNetwork("small", lambda: (_linear(), _linear()), (5,))

SMALL = {
    "proximal-step": lambda: proximal_step(rows=20, columns=12, seconds=0.0),
    "training-step": lambda: training_step([Workload("small", lambda: nn.Linear(5, 10), (4, 5))], seconds=0.0),
    "adaptive-step": lambda: adaptive_step(widths=[4], seconds=0.0),
    "unit-step": lambda: unit_step([Workload("small", lambda: perceptron(4), (4, 784))], seconds=0.0),
    "inference": lambda: inference(CASES[:1], batches=(1,), seconds=0.0),
    # With two threads nothing is compiled by torch.compile, which takes seconds.
    "native": lambda: native_networks([_SMALL_NETWORK], cases=[(2, 2)], seconds=0.0),
    "threads": lambda: two_threads([_SMALL_NETWORK], seconds=0.0),
    "density": lambda: density_sweep([Layer("small", lambda: nn.Linear(5, 10), (5,))], batches=(2,), seconds=0.0),
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


def test_bursts_are_interleaved_and_divided():
    calls = []
    times = time_bursts({"x": lambda: calls.append("x"), "y": lambda: calls.append("y")}, seconds=0.0, burst=1e-5)
    assert times["x"].runs == times["y"].runs == 5
    assert times["x"].median < 1e-5  # a call, not a burst
    assert calls.count("x") > 5


def test_a_call_that_computes_something_else_is_not_timed(monkeypatch):
    def wrong(network, images, threads):
        return lambda: 1.5 * in_pytorch(network, images, threads)()

    monkeypatch.setattr(native, "_SHRUNK", {"PyTorch": in_pytorch, "SparseProp": wrong, "SparseLab": lambda *_: None})
    (row,) = native_networks([_SMALL_NETWORK], cases=[(2, 1)], seconds=0.0).rows
    assert row["SparseProp"] == "wrong outputs"
    assert row["PyTorch"] > 0
    assert row["SparseLab"] is None
    monkeypatch.setattr(native, "in_native", wrong)
    with pytest.raises(GossamerError, match="the outputs of `native` differ"):
        native_networks([_SMALL_NETWORK], cases=[(2, 1)], seconds=0.0)


def test_networks_of_the_benchmark_have_their_zeros(monkeypatch):
    monkeypatch.chdir(ROOT)
    for network in NETWORKS[:-2]:  # the others are large
        dense, shrunk = network.build()
        images = torch.rand(2, *network.shape)
        assert dense(images).shape == shrunk(images).shape == (2, shrunk(images).shape[1])
        kept = sum(int((p != 0).sum()) for p in shrunk.parameters() if p.dim() > 1)
        assert kept < 0.25 * sum(p.numel() for p in dense.parameters() if p.dim() > 1)
    monkeypatch.chdir("/")
    with pytest.raises(GossamerError, match="runs in a clone of the repository"):
        NETWORKS[0].build.func.__wrapped__("mnist", "mnist")


def test_the_crossover_lies_between_measured_densities():
    assert crossover([(0.01, 8.0), (0.1, 2.0), (0.4, 0.5)]) == pytest.approx(20)
    assert crossover([(0.01, 8.0), (0.1, 2.0)]) is None
    assert crossover([(0.01, 0.9), (0.1, 0.5)]) is None


def test_a_journal_goes_on_where_it_stopped(tmp_path, monkeypatch):
    path = tmp_path / "a.jsonl"
    assert Journal(path).measured("x", lambda: {"value": 1.5}) == {"value": 1.5}
    with path.open("a") as file:
        file.write('{"key": "y", "row": {"val')  # the process was killed here
    again = Journal(path)
    assert again.measured("x", lambda: {"value": 2.5}) == {"value": 1.5}
    assert again.measured("y", lambda: {"value": 3.5}) == {"value": 3.5}
    assert Journal(path).measured("y", dict) == {"value": 3.5}
    monkeypatch.setattr(torch, "__version__", "another")
    assert Journal(path).measured("x", lambda: {"value": 2.5}) == {"value": 2.5}
    Journal(path).close()
    assert not path.exists()


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


def test_the_summary_of_trained_networks(tmp_path):
    row = {"network": "x", "weights %": 1.25, "threads": 1, "ONNX Runtime dense": 20.25, "ONNX Runtime": 5.5}
    rows = [{**row, "batch": 1}, {**row, "batch": 64, "ONNX Runtime": 7.75}, {**row, "batch": 64, "threads": 2}]
    rows.append({**row, "network": "random", "batch": 1, "ONNX Runtime dense": None})
    Result("native", "title", "A note.", Machine.here(), tuple(rows)).write(tmp_path)
    *_, line = page_section(tmp_path)("native-summary").strip().splitlines()
    assert line == "| x | 1.2 % | 20.2x | 20.2x | 5.5x | 7.8x |"


def test_the_pages_show_the_committed_results():
    pages = [(ROOT / name).read_text() for name in ("docs/performance.md", "docs/native.md", "README.md")]
    for page in pages:
        assert page == filled(page, page_section(ROOT / "benchmarks" / "results"))
    assert all(f"<!-- begin {name} -->" in "".join(pages) for name in BENCHMARKS)
