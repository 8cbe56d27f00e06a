"""The networks of the paper, one for each data set, and two more.

To add one: a file with a subclass of :class:`Network`, and a line in :data:`NETWORKS`. The network of a data set bears
its name.
"""

from __future__ import annotations

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
    "example_of",
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
    """Build the network of this name, its weights drawn by ``generator``."""
    return _known(name)(generator)


def example_of(name: str) -> Tensor:
    """Return a batch of one blank input of the network of this name, for what needs to see it run."""
    return torch.zeros(1, *_known(name).input_shape)


def _known(name: str) -> type[Network]:
    if name not in NETWORKS:
        raise GossamerError(f"There is no network {name!r}. There is: {', '.join(NETWORKS)}.")
    return NETWORKS[name]
