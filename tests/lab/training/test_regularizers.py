"""Every regularizer of a configuration can be built, and its groups are those of the configuration."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from gossamer_lab.training import REGULARIZERS, TrainingConfig, regularizer_spec

EXAMPLE = torch.zeros(1, 4)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))


@pytest.mark.parametrize("name", REGULARIZERS)
def test_every_regularizer_is_built(name: str) -> None:
    spec = regularizer_spec(name)
    config = TrainingConfig(dataset="digits", regularizer=name, strength=spec.strength, **spec.parameters)
    regularizer = spec.build(network(), config, EXAMPLE)
    assert (regularizer is None) == (name == "none")
    if spec.grouped:
        of_units = spec.build(network(), replace(config, groups="units"), EXAMPLE)
        assert of_units is not None
        assert of_units.units is not None
        assert of_units.units.count == 3
