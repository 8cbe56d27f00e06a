"""The networks of the paper, one per data set, and two variants.

To add one: write a subclass of `Network` in its own file and add it to `NETWORKS`. The default network of a data set
has the name of the data set.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn

from gossamer.errors import GossamerError
from gossamer_lab.networks.cifar10 import Cifar10Network
from gossamer_lab.networks.digits import DigitsNetwork
from gossamer_lab.networks.fashion_mnist import FashionMnistNetwork
from gossamer_lab.networks.initialise import xavier_
from gossamer_lab.networks.mnist import MnistNetwork, MnistPerceptron
from gossamer_lab.networks.network import Network
from gossamer_lab.networks.pendigits import PendigitsNetwork, WidePendigitsNetwork
from gossamer_lab.networks.sdd import SddNetwork

__all__ = [
    "NETWORKS",
    "Cifar10Network",
    "DigitsNetwork",
    "FashionMnistNetwork",
    "MnistNetwork",
    "MnistPerceptron",
    "Network",
    "PendigitsNetwork",
    "SddNetwork",
    "WidePendigitsNetwork",
    "build",
    "example_input",
    "parameter_shapes",
    "xavier_",
]

NETWORKS: dict[str, type[Network]] = {
    "digits": DigitsNetwork,
    "mnist": MnistNetwork,
    "fashion-mnist": FashionMnistNetwork,
    "pendigits": PendigitsNetwork,
    "sdd": SddNetwork,
    "cifar-10": Cifar10Network,
    "lenet-300-100": MnistPerceptron,
    "pendigits-wide": WidePendigitsNetwork,
}


def build(name: str, generator: torch.Generator | None = None) -> nn.Module:
    """Build a network by name, its weights drawn from `generator`."""
    return _network(name)(generator)


def example_input(name: str) -> Tensor:
    """Return a batch of one all-zero input of a network."""
    return torch.zeros(1, *_network(name).input_shape)


@cache
def parameter_shapes(name: str) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of a network's parameters, in order, without allocating or initialising them."""
    with torch.device("meta"):
        return tuple(tuple(parameter.shape) for parameter in _network(name)().parameters())


def _network(name: str) -> type[Network]:
    if name not in NETWORKS:
        raise GossamerError(f"Unknown network {name!r}. Available: {', '.join(NETWORKS)}.")
    return NETWORKS[name]
