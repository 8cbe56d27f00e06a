from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import gossamer
from gossamer.errors import GossamerError
from gossamer.visualization import Network, collect

from .conftest import Net


def test_counts_are_those_of_measure(model: Net, example: Tensor, network: Network) -> None:
    small = gossamer.shrink(model, example, form="module")
    assert network.dense == network.trained == gossamer.measure(model, example)
    assert network.shrunk == gossamer.measure(small, example)
    assert network.deployed == gossamer.measure(small, example).against(gossamer.measure(model, example))
    for layer, counted in zip(network.layers, gossamer.measure(model, example).layers, strict=True):
        assert layer.trained == counted
        assert layer.histogram.zeros == counted.weights - counted.nonzeros
        assert sum(layer.histogram.counts) == counted.nonzeros
        assert sum(level > 0 for level in layer.pattern.levels) == counted.nonzeros
    assert network.histogram.zeros == sum(layer.histogram.zeros for layer in network.layers)
    assert sum(network.histogram.counts) == network.trained.total.nonzeros


def test_the_plan_is_that_of_shrink(model: Net, example: Tensor, network: Network) -> None:
    plan = gossamer.plan(model, example, form="module")
    assert network.removal is not None
    assert (network.removal.before, network.removal.after) == (plan.weights_before, plan.weights_after)
    rows = [(r.where, r.before, r.after, r.unread, r.constant, dict(r.reasons)) for r in network.removal.rows]
    assert rows == [(c.where, c.units, c.kept, c.unread, c.constant, dict(c.reasons)) for c in plan.channels]
    assert network.removal.units_removed == sum(c.unread + c.constant for c in plan.channels) > 0


def test_the_model_stays_as_it_is(model: Net, example: Tensor) -> None:
    before = copy.deepcopy(model.state_dict())
    model.train()
    collect(model, example, rounds=1)
    assert model.training
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_bytes_are_those_of_the_tensors_and_of_the_file(
    model: Net, example: Tensor, network: Network, tmp_path: Path
) -> None:
    dense, shrunk = network.variants
    assert dense.memory_bytes == 4 * sum(parameter.numel() for parameter in model.parameters())
    gossamer.save(model, tmp_path / "dense")
    gossamer.save(gossamer.shrink(model, example, form="module"), tmp_path / "shrunk", sparse=True)
    assert dense.file_bytes == (tmp_path / "dense").stat().st_size
    assert shrunk.file_bytes == (tmp_path / "shrunk").stat().st_size
    given = collect(model, example, files={"dense": tmp_path / "shrunk"}, rounds=0).variants
    assert given[0].file_bytes == shrunk.file_bytes


def test_latency_is_measured_on_the_inputs_that_are_given(model: Net, example: Tensor) -> None:
    found = collect(model, example, inputs={"one": example, "two": example.repeat(2, 1, 1, 1)}, rounds=2)
    for variant in found.variants:
        assert list(variant.seconds) == ["one", "two"]
        assert all(seconds > 0 for seconds in variant.seconds.values())


def test_a_model_that_has_lost_units_is_counted_against_the_dense_one(model: Net, example: Tensor) -> None:
    smaller = gossamer.shrink(model, example, form="module")
    found = collect(smaller, example, dense=model, rounds=0)
    assert [variant.name for variant in found.variants] == ["dense", "trained", "shrunk"]
    assert found.dense.total.weights == gossamer.measure(model, example).total.weights
    assert found.trained == gossamer.measure(smaller, example)
    assert found.deployed.params_kept < 1
    with pytest.raises(GossamerError, match=r"`dense` has the layers 1\.weight, and `model` has conv") as error:
        collect(model, example, dense=nn.Sequential(nn.Flatten(), nn.Linear(16, 2)), rounds=0)
    assert "Give as `dense` the network" in str(error.value)


def test_a_native_form_is_one_more_row(model: Net, example: Tensor) -> None:
    class Native(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            return images.new_zeros(len(images), 4)

    native = collect(model, example, native=Native(), rounds=1).variants[-1]
    assert native.name == "native"
    assert (native.weights, native.macs, native.memory_bytes, native.file_bytes) == (None,) * 4
    assert native.seconds["the example"] > 0


class Branching(nn.Module):
    """Control flow that depends on values: `shrink` refuses it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(12, 7)

    def forward(self, inputs: Tensor) -> Tensor:
        output: Tensor = self.layer(inputs)
        return output.relu() if inputs.sum() > 0 else output


def test_a_model_that_shrink_refuses_is_still_counted() -> None:
    found = collect(Branching(), torch.ones(2, 12), rounds=0)
    assert found.removal is None
    assert found.shrunk is None
    assert found.problem is not None
    assert "torch.export" in found.problem
    assert found.deployed.params_kept == 1.0
    assert [variant.name for variant in found.variants] == ["dense"]


def test_weights_that_are_not_finite_are_counted_apart(model: Net, example: Tensor) -> None:
    with torch.no_grad():
        model.output.weight[0, 0] = float("nan")
        model.output.weight[1, 1] = float("inf")
    found = collect(model, example, rounds=0)
    assert found.histogram.nonfinite == 2
    assert found.histogram.zeros + found.histogram.nonfinite + sum(found.histogram.counts) == found.dense.total.weights


def test_a_network_of_zeros_alone_is_collected(model: Net, example: Tensor) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    found = collect(model, example, rounds=0)
    assert found.histogram.zeros == found.dense.total.weights
    assert found.deployed.params_kept == 0.0
    assert not any(level for layer in found.layers for level in layer.pattern.levels)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes(dtype: torch.dtype) -> None:
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2)).to(dtype)
    with torch.no_grad():
        model[0].weight[1] = 0
    found = collect(model, torch.ones(1, 6, dtype=dtype), rounds=0)
    assert found.histogram.zeros == 6
