"""Full and shrunk agree on random networks, at two sizes; GOSSAMER_NETWORKS sets how many are drawn (50 by default)."""

from __future__ import annotations

import os

import torch
from hypothesis import HealthCheck, given, settings
from torch import nn

from gossamer.shrinking import GuardError, plan
from gossamer.shrinking.analyse import RULE_FAILED
from gossamer.shrinking.api import Form
from gossamer.shrinking.decide import NOT_VERIFIED

from .networks import Inputs, Recipe, build, other_values, recipes, second_input

NETWORKS = int(os.environ.get("GOSSAMER_NETWORKS", "50"))


def check(recipe: Recipe, form: Form) -> tuple[int, int]:
    """Shrink a random network and compare; returns the number of parameters before and after."""
    model, example = build(recipe)
    found = plan(model, example, form=form)
    small = found.apply()
    reasons = {reason for channels in found.channels for reason in channels.reasons}
    assert NOT_VERIFIED not in reasons, (recipe, str(found))
    assert not any(reason.startswith(RULE_FAILED) for reason in reasons), (recipe, str(found))
    assert relative_error(model, small, example) <= tolerance(recipe), recipe
    assert relative_error(model, small, other_values(recipe)) <= tolerance(recipe), recipe
    try:
        error = relative_error(model, small, second_input(recipe, model))
    except GuardError:  # a graph may refuse another size, and nothing else may
        assert found.form == "graph"
    else:
        assert error <= tolerance(recipe), recipe
    return count(model), count(small)


def tolerance(recipe: Recipe) -> float:
    return 1e-10 if recipe.double else 1e-5


def relative_error(model: nn.Module, small: nn.Module, inputs: Inputs) -> float:
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    with torch.no_grad():
        expected, outputs = model(*inputs), small(*inputs)
    return float((expected - outputs).abs().max() / expected.abs().max().clamp_min(1e-3))


def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@settings(
    max_examples=NETWORKS,
    deadline=None,
    derandomize=NETWORKS == 50,
    suppress_health_check=list(HealthCheck),
)
@given(recipe=recipes)
def test_random_networks_keep_their_outputs(recipe: Recipe) -> None:
    check(recipe, "graph" if recipe.seed % 5 == 0 else "auto")
