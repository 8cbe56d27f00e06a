"""Random networks: every way to run the lowered network agrees with PyTorch."""

from __future__ import annotations

import copy
from random import Random

import pytest
import torch
from torch import Tensor

from gossamer.example import call_with
from gossamer.inference.lowering import lower
from gossamer.inference.program import Program
from gossamer.inference.tracing import first_sample, trace

from .libraries import MACHINES, ways
from .networks import Recipe, build

NETWORKS = 300
LIBRARIES = 12
BATCH = 19  # a whole vector of samples and some more, for each number of lanes
TOLERANCE = 1e-5


def recipes(count: int, seed: int) -> list[Recipe]:
    draw = Random(seed)
    return [
        Recipe(
            kind=draw.choice(["image", "image", "image", "signal", "tokens", "features"]),
            blocks=draw.randint(1, 4),
            seed=draw.randrange(2**31),
            density=draw.choice([0.05, 0.3, 0.6, 0.9, 1.0]),
        )
        for _ in range(count)
    ]


def relative_difference(found: Tensor, wanted: Tensor) -> float:
    size = wanted.abs().max().item()
    return ((found - wanted).abs().max() / max(size, 1e-30)).item() if size else found.abs().max().item()


def lowered(recipe: Recipe) -> tuple[Program, Tensor, Tensor]:
    """The program, a batch of inputs, and what PyTorch computes for it: in float64, which is the exact result."""
    model, example = build(recipe)
    torch.manual_seed(recipe.seed)
    if example.is_floating_point():
        inputs = torch.randn(BATCH, *example.shape[1:])
    else:
        inputs = torch.randint(0, 11, (BATCH, *example.shape[1:]))
    with torch.no_grad():
        wanted = copy.deepcopy(model).double()(inputs.double() if example.is_floating_point() else inputs)
    program = lower(trace(model, first_sample(call_with(model, example))))
    return program, inputs, wanted


def check(chosen: list[Recipe], machine_number: int) -> float:
    """Compare all ways with PyTorch; the largest relative difference."""
    found = [lowered(recipe) for recipe in chosen]
    worst = 0.0
    compiled = ways([program for program, *_ in found], MACHINES[machine_number % len(MACHINES)])
    for recipe, (_, inputs, wanted), each in zip(chosen, found, compiled, strict=True):
        for name, run in each.items():
            (output,) = run([inputs])
            difference = relative_difference(output.reshape(wanted.shape), wanted)
            assert difference <= TOLERANCE, f"{recipe} differs by {difference:.2e} as {name}"
            worst = max(worst, difference)
    return worst


@pytest.mark.parametrize("number", range(LIBRARIES))
def test_random_networks(number: int) -> None:
    size = NETWORKS // LIBRARIES
    check(recipes(NETWORKS, seed=0)[number * size : (number + 1) * size], number)
