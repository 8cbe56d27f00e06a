"""Terms on units: coefficients, selection, print, and one clear error for each bad input."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from torch import Tensor, nn

import gossamer
from gossamer import GossamerError
from gossamer.regularizers import assembly
from gossamer.shrinking.units import find_units

GROUPED = [
    gossamer.integrated_tl1,
    gossamer.group_lasso,
    gossamer.group_transformed_l1,
    gossamer.sparse_group_lasso,
    gossamer.combined_group_exclusive,
]
EXAMPLE = torch.randn(2, 1, 6, 6)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU()),
        *(nn.Conv2d(4, 3, 3), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(12, 2)),
    )


@pytest.mark.parametrize("recipe", GROUPED)
def test_every_recipe_with_groups_takes_units(recipe):
    regularizer = recipe(network(), 1e-2, groups="units", example=EXAMPLE)
    assert regularizer.units.count == 7
    assert all(term.groups is None for rule in regularizer.rules for term in rule.terms)
    assert regularizer.value() > 0


def test_value_is_that_of_the_concatenated_vectors():
    model = network()
    regularizer = gossamer.unit_tl1(model, 1.0, example=EXAMPLE, a=2.0, balance=0.3)
    conv, norm, second, head = model[0], model[1], model[3], model[6]

    def rho(x: Tensor) -> Tensor:
        return 3 * x.abs() / (2 + x.abs())

    with torch.no_grad():
        expected = 0.3 * sum(rho(layer.weight).sum() for layer in (conv, second, head))
        for i in range(4):  # the convolution has no scale in front of the batch norm
            unit = torch.cat([norm.weight[i : i + 1], norm.bias[i : i + 1], second.weight[:, i].flatten()])
            expected += 0.7 * math.sqrt(len(unit)) * rho(unit.norm())
        for i in range(3):
            unit = torch.cat([second.bias[i : i + 1], head.weight[:, 4 * i : 4 * i + 4].flatten()])
            expected += 0.7 * math.sqrt(len(unit)) * rho(unit.norm())
    assert float(regularizer.value()) == pytest.approx(float(expected), rel=1e-6)


def test_coefficients_are_means_over_the_weights_of_a_unit():
    regularizer = gossamer.integrated_tl1(network(), 1e-2, groups="units", example=EXAMPLE, strengths={"6": 2e-2})
    units = regularizer.units
    # By depth 1 - mu = 0.9, 0.5, 0.1; the head reads what is behind the second convolution, at twice the strength.
    assert units.terms[0].coefficients.tolist() == pytest.approx([0.5] * 4 + [0.2] * 3)


def test_units_of_layers_that_are_left_out_are_not_covered():
    regularizer = gossamer.group_lasso(network(), 1e-2, groups="units", example=EXAMPLE, skip=["6"])
    assert regularizer.units.count == 4
    assert "not covered: 6.weight:1: 12 belong to a layer that is left out" in str(regularizer)


def test_print_shows_units_scale_free_weights_and_what_is_not_covered():
    shown = str(gossamer.unit_tl1(network(), 1e-2, example=EXAMPLE))
    assert "7 units with Group(inner=TransformedL1(a=1.0))" in shown
    assert "4 of     29 weights" in shown
    assert "1.weight:0, 1.bias:0, 3.weight:1" in shown
    assert "in front of a normalisation, norms are kept: 0.weight" in shown
    assert "not covered: 6.weight:0: 2 it is an output of the model" in shown


def test_print_shows_what_is_not_a_unit_of_its_own():
    model = nn.Sequential(nn.Conv2d(1, 6, 1), nn.Conv2d(6, 9, 1, groups=3), nn.Flatten(), nn.Linear(9, 2))
    shown = str(gossamer.unit_tl1(model, 1e-2, example=torch.randn(2, 1, 1, 1)))
    assert "not units of their own: 1.weight:0: 9 are 3 units, the groups of 1 must keep equal sizes" in shown
    assert "not units of their own" not in str(gossamer.unit_tl1(network(), 1e-2, example=EXAMPLE))


def test_norms_are_kept_where_an_example_is_given_unless_told_otherwise():
    model = network()
    assert [kept.weight.name for kept in gossamer.l1(model, 1e-2, example=EXAMPLE).units.kept_norms] == ["0.weight"]
    assert gossamer.l1(model, 1e-2).units is None
    assert gossamer.l1(model, 1e-2, example=EXAMPLE, keep_norms=False).units is None
    assert not gossamer.unit_tl1(model, 1e-2, example=EXAMPLE, keep_norms=False).units.kept_norms


@pytest.mark.parametrize("recipe", GROUPED)
def test_units_need_an_example(recipe):
    with pytest.raises(GossamerError, match='`groups="units"` needs `example`'):
        recipe(network(), 1e-2, groups="units")


def test_unit_tl1_and_keep_norms_need_an_example():
    with pytest.raises(GossamerError, match='`groups="units"` needs `example`'):
        gossamer.unit_tl1(network(), 1e-2)
    with pytest.raises(GossamerError, match="`keep_norms=True` needs `example`"):
        gossamer.l1(network(), 1e-2, keep_norms=True)


class Untraceable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.norm(x)) if float(x.sum()) > 0 else x


def test_a_model_that_cannot_be_traced():
    model, example = Untraceable(), torch.ones(2, 4)
    with pytest.raises(GossamerError, match=r'`groups="units"` needs the graph of the model.*cannot be traced'):
        gossamer.group_lasso(model, 1e-2, groups="units", example=example)
    with pytest.raises(GossamerError, match=r"`keep_norms=True` needs the graph of the model"):
        gossamer.l1(model, 1e-2, example=example, keep_norms=True)
    assert "norms are not kept: the model was not analysed" in str(gossamer.l1(model, 1e-2, example=example))


def test_a_frozen_member():
    model = network()
    model[3].requires_grad_(False)
    with pytest.raises(GossamerError, match=r"3\.bias, 3\.weight is frozen .* leave its layer out by `skip`"):
        gossamer.unit_tl1(model, 1e-2, example=EXAMPLE)
    assert gossamer.unit_tl1(network(), 1e-2, example=EXAMPLE, skip=["6"]).units.count == 4


def test_a_unit_on_two_devices(monkeypatch):
    model = network()
    found = find_units(model, EXAMPLE)
    monkeypatch.setattr(assembly, "find_units", lambda model, example: found)
    model[3].to("meta")
    with pytest.raises(GossamerError, match=r"two devices: 0\.weight is on cpu, 3\.weight on meta"):
        assembly.assemble(
            model, 1e-2, gossamer.group_lasso(model, 1e-2).rules[:0] + _on_units(model), {"example": EXAMPLE}
        )


def _on_units(model):
    from dataclasses import replace

    rules = gossamer.group_lasso(model, 1e-2).rules
    return tuple(replace(rule, terms=tuple(replace(t, groups="units") for t in rule.terms)) for rule in rules)


def test_a_model_without_units():
    model = nn.Sequential(nn.Linear(4, 3))
    with pytest.raises(GossamerError, match=r"no units that could be removed \(0.weight:0: 3 it is an output"):
        gossamer.unit_tl1(model, 1e-2, example=torch.randn(2, 4))


@pytest.mark.parametrize("balance", [-0.1, 1.1, float("nan")])
def test_balance_must_be_a_share(balance):
    with pytest.raises(GossamerError, match="`balance` must be between 0 and 1"):
        gossamer.unit_tl1(network(), 1e-2, example=EXAMPLE, balance=balance)


@pytest.mark.parametrize(
    "normalise",
    [
        nn.utils.parametrizations.weight_norm,
        nn.utils.parametrizations.spectral_norm,
        nn.utils.weight_norm,
        nn.utils.spectral_norm,
    ],
)
def test_weight_and_spectral_norm_are_refused(normalise):
    model = network()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        normalise(model[3])
    with pytest.raises(GossamerError, match=r"`3\.weight` is computed by a parametrization"):
        gossamer.unit_tl1(model, 1e-2, example=EXAMPLE)
