"""Full and shrunk agree on random networks; GOSSAMER_NETWORKS sets how many are drawn (50 by default)."""

from __future__ import annotations

import os

import torch
from hypothesis import HealthCheck, given, settings
from torch import nn

from gossamer.shrinking import plan
from gossamer.shrinking.analyse import RULE_FAILED
from gossamer.shrinking.api import Form
from gossamer.shrinking.decide import NOT_VERIFIED

from .networks import Recipe, build, recipes

NETWORKS = int(os.environ.get("GOSSAMER_NETWORKS", "50"))


def check(recipe: Recipe, form: Form) -> tuple[int, int]:
    """Shrink a random network and compare; returns the number of parameters before and after."""
    model, example = build(recipe)
    found = plan(model, example, form=form)
    small = found.apply()
    reasons = {reason for channels in found.channels for reason in channels.reasons}
    assert NOT_VERIFIED not in reasons, (recipe, str(found))
    assert not any(reason.startswith(RULE_FAILED) for reason in reasons), (recipe, str(found))
    other = torch.randn_like(example) if recipe.image else torch.randint(0, 11, example.shape)
    tolerance = 1e-10 if recipe.double else 1e-5
    for given_input in (example, other, torch.cat([other, example])):
        expected, outputs = model(given_input), small(given_input)
        error = (expected - outputs).abs().max() / expected.abs().max().clamp_min(1e-3)
        assert error <= tolerance, (recipe, float(error))
    return count(model), count(small)


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
