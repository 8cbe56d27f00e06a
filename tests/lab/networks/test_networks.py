from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from gossamer.errors import GossamerError
from gossamer.measurement import measure
from gossamer_lab.data import LOADERS
from gossamer_lab.networks import NETWORKS, DigitsNetwork, build, example_input, parameter_shapes, xavier_


def test_there_is_a_network_for_every_data_set() -> None:
    assert set(NETWORKS) >= set(LOADERS)


@pytest.mark.parametrize("name", NETWORKS)
def test_takes_its_example_and_gives_one_logit_per_class(name: str) -> None:
    assert build(name)(example_input(name)).shape == (1, 11 if name == "sdd" else 10)


# Convolutions and fully connected layers of the paper's table of architectures.
LAYERS = {
    "digits": (1, 2),
    "mnist": (2, 2),
    "fashion-mnist": (2, 3),
    "pendigits": (2, 2),
    "sdd": (2, 3),
    "cifar-10": (4, 2),
}


@pytest.mark.parametrize("name", LAYERS)
def test_has_the_layer_counts_of_the_paper(name: str) -> None:
    modules = list(build(name).modules())
    convolutions = sum(isinstance(module, nn.Conv1d | nn.Conv2d) for module in modules)
    assert (convolutions, sum(isinstance(module, nn.Linear) for module in modules)) == LAYERS[name]


def test_mnist_is_lenet_5_as_others_have_counted_it() -> None:
    total = measure(build("mnist"), example_input("mnist")).total
    assert (total.weights, total.macs) == (430_500, 2_293_000)


def test_digits_has_the_layers_of_the_paper() -> None:
    shapes = {name: tuple(weight.shape) for name, weight in DigitsNetwork().named_parameters() if weight.dim() > 1}
    assert shapes == {"conv.weight": (32, 1, 3, 3), "hidden.weight": (128, 512), "output.weight": (10, 128)}


def test_one_seed_is_one_network_whatever_was_drawn_before() -> None:
    first = build("digits", torch.Generator().manual_seed(3)).state_dict()
    torch.rand(7)
    again = build("digits", torch.Generator().manual_seed(3)).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_weights_start_within_the_bound_of_xavier_and_biases_at_zero() -> None:
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Linear(5, 6, bias=False))
    xavier_(model, torch.Generator().manual_seed(0))
    convolution, linear = model[0], model[2]
    assert convolution.weight.abs().max() <= math.sqrt(6 / (9 * 2 + 9 * 4))
    assert linear.weight.abs().max() <= math.sqrt(6 / 11)
    assert (convolution.bias == 0).all()


def test_an_unknown_network_is_answered_with_the_known_ones() -> None:
    with pytest.raises(GossamerError, match=r"Unknown network 'stars'. Available: .*digits"):
        build("stars")


@pytest.mark.parametrize("name", NETWORKS)
def test_shapes_are_those_of_the_built_network_without_building_it(name: str) -> None:
    assert parameter_shapes(name) == tuple(tuple(parameter.shape) for parameter in build(name).parameters())
