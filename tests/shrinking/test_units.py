"""The map of units: what holds and follows them, and that every set of units that holds only zeros leaves in full."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from torch import Tensor, nn

import gossamer
from gossamer.errors import GossamerError
from gossamer.penalties import L1, Group
from gossamer.proximal.fused import Move
from gossamer.proximal.units import unit_step_
from gossamer.regularizers import Units, UnitTerm, UnregularizedWarning
from gossamer.shrinking.units import NONE, find_units

from .blocks import Attention, GatedMLP, Grouped, InvertedBottleneck, Recurrent, Residual, Shuffle
from .networks import ImageNet, Recipe, TokenNet, build, recipes

NETWORKS = int(os.environ.get("GOSSAMER_NETWORKS", "50")) // 3


def axes(model: nn.Module, example: Tensor) -> dict[str, tuple[bool, list[int]]]:
    return {f"{axis.name}:{axis.dim}": (axis.holds, axis.units.tolist()) for axis in find_units(model, example).axes}


def test_hidden_units_hold_what_reads_them_and_the_first_layer():
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 5))
    assert axes(model, torch.randn(2, 4)) == {
        "0.weight:0": (True, [0, 1, 2]),
        "0.bias:0": (True, [0, 1, 2]),
        "2.weight:0": (False, [3, 4]),
        "2.weight:1": (True, [0, 1, 2]),
        "2.bias:0": (True, [3, 4]),
        "4.weight:1": (True, [3, 4]),
    }


def test_channels_through_a_residual_addition_and_flatten_are_one_unit():
    model = nn.Sequential(nn.Conv2d(1, 2, 1), Residual(2, 3), nn.Flatten(), nn.Linear(8, 4))
    found = axes(model, torch.randn(2, 1, 2, 2))
    stream = found["0.weight:0"][1]
    assert found["1.second.weight:0"] == (False, stream)
    assert found["1.first.weight:1"] == (True, stream)
    assert found["3.weight:1"] == (True, [stream[0]] * 4 + [stream[1]] * 4)
    # In front of the batch norm there is no scale: its own scale and shift hold the units instead.
    assert not found["1.first.weight:0"][0]
    assert found["1.norm.weight:0"] == (True, found["1.first.weight:0"][1])


def test_a_head_is_a_unit():
    model = nn.Sequential(nn.LayerNorm(8), Attention(8, 4, fused=True), nn.LayerNorm(8))
    found = find_units(model, torch.randn(2, 5, 8))
    assert found.count == 4
    axes = ("query.weight:0", "key.weight:0", "value.weight:0", "project.weight:1")
    assert found.joined == {f"1.{axis}": "8 are 4 units, all heads must keep the same width" for axis in axes}


def test_a_group_of_a_convolution_is_a_unit():
    model = nn.Sequential(nn.Conv2d(1, 6, 1), nn.Conv2d(6, 9, 1, groups=3), nn.Flatten(), nn.Linear(9, 2))
    found = axes(model, torch.randn(2, 1, 1, 1))
    assert found["0.weight:0"] == (True, [0, 0, 1, 1, 2, 2])
    assert found["1.weight:0"] == (True, [0, 0, 0, 1, 1, 1, 2, 2, 2])
    assert found["3.weight:1"] == (True, [0, 0, 0, 1, 1, 1, 2, 2, 2])


def test_reasons_name_what_is_no_unit():
    model = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.Linear(3, 2))
    found = find_units(model, torch.randn(2, 4))
    assert found.count == 0
    assert "takes its statistics over all units" in " ".join(found.reasons["0.weight:0"])
    assert found.reasons["2.weight:0"] == {"it is an output of the model": 2}


def test_every_weight_belongs_to_one_unit_at_most():
    for model, example in (
        (ImageNet([InvertedBottleneck(6, 8, squeeze=True), Shuffle(6), Grouped(6, 3, 4)], 6, pooled=True), None),
        (TokenNet([GatedMLP(8, 9), Recurrent(8, 5, gru=True, both=False)], 8), torch.randint(0, 11, (2, 5))),
    ):
        found = find_units(model, torch.randn(2, 3, 8, 8) if example is None else example)
        holding = [axis.name for axis in found.axes if axis.holds]
        assert found.count > 0
        assert len(holding) == len(set(holding))


def kill(units: Units, zeroed: Tensor) -> None:
    """One proximal step, with a coefficient that only these units feel."""
    units.terms = (UnitTerm(Group(L1()), torch.where(zeroed, 1e6, 0.0).double()),)
    rules = {id(own.weight.parameter): own.weight for own in units.slices}
    with torch.no_grad():
        unit_step_(units, [Move(None, weight.parameter, 1.0) for weight in rules.values()])  # type: ignore[arg-type]


def some(units: Units, seed: int) -> Tensor:
    """Half of the units, but not all along any axis: every layer keeps one."""
    count = 1 + max(int(own.units.max()) for own in units.slices)
    zeroed = torch.rand(count, generator=torch.Generator().manual_seed(seed)) < 0.5
    for own in units.slices:
        along = own.units[own.units != NONE]
        if bool(zeroed[along].all()):
            zeroed[along[0]] = False
    return zeroed


def check(model: nn.Module, example: Tensor, seed: int) -> int:
    """Set half of the units to zero; all of them must leave, with all that follows them. Returns their number."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnregularizedWarning)  # parameters of no layer
        try:
            units = gossamer.group_lasso(model, 1.0, groups="units", example=example).units
        except GossamerError:
            assert find_units(model, example).count == 0
            return 0
    assert units is not None
    zeroed = some(units, seed)
    kill(units, zeroed)
    found = gossamer.plan(model, example, form="graph" if seed % 3 == 0 else "auto")
    for own in units.slices:
        gone = torch.nonzero((own.units != NONE) & zeroed[own.units]).flatten().tolist()
        kept = found.kept.get(own.weight.name, {}).get(own.dim)
        left = set(range(len(own.units)) if kept is None else kept.flatten().tolist())
        assert left.isdisjoint(gone), (own.weight.name, own.dim, sorted(left & set(gone)), str(found))
    return int(zeroed.sum())


@settings(max_examples=NETWORKS, deadline=None, derandomize=NETWORKS == 16, suppress_health_check=list(HealthCheck))
@given(recipe=recipes)
def test_units_that_hold_only_zeros_leave_in_full(recipe: Recipe) -> None:
    check(*build(replace(recipe, density=1.0)), recipe.seed)  # only the units are zero


def test_many_units_leave():
    torch.manual_seed(0)
    blocks = [Residual(6, 5), InvertedBottleneck(6, 8, squeeze=True), Grouped(6, 3, 4), Shuffle(6)]
    assert check(ImageNet(blocks, 6, pooled=True).eval(), torch.randn(2, 3, 8, 8), seed=4) > 10


@pytest.mark.parametrize("frozen", [False, True])
def test_a_frozen_batch_norm_does_not_take_the_scale(frozen: bool):
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(2, 2))
    model[1].train(not frozen)
    assert len(find_units(model, torch.randn(2, 1, 1, 1)).scale_free) == (not frozen)
