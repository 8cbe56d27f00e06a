"""The networks of the benchmark `native`: trained ones with their real zeros, and two large shapes with random ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import torch
from torch import nn

from gossamer.errors import GossamerError
from gossamer.store import load, read_manifest
from gossamer_lab.bench.models import perceptron, residual_network
from gossamer_lab.networks import build, example_input

__all__ = ["FOLDER", "NETWORKS", "SparseNetwork", "scatter_zeros_"]

# In the repository.
FOLDER = Path("benchmarks/networks")


@dataclass(frozen=True)
class SparseNetwork:
    """A network with zeros.

    Attributes:
        name: Label.
        build: Returns the network as it was before it was trained, and the trained one without its dead units. Where
            no unit is dead, both are one.
        shape: Of one input.
    """

    name: str
    build: Callable[[], tuple[nn.Module, nn.Module]]
    shape: tuple[int, ...]


def _trained(name: str, file: str, network: str) -> SparseNetwork:
    return SparseNetwork(name, partial(_load, file, network), tuple(example_input(network).shape[1:]))


@cache
def _load(file: str, network: str) -> tuple[nn.Module, nn.Module]:
    path = FOLDER / f"{file}.safetensors"
    if not path.exists():
        raise GossamerError(f"{path} does not exist. This benchmark runs in a clone of the repository, at its top.")
    config = read_manifest(path).provenance["config"]
    assert network == (config["network"] or config["dataset"])
    first = build(network, torch.Generator().manual_seed(0))
    return first.eval(), load(path, build(network, torch.Generator().manual_seed(0))).eval()


@cache
def _scattered(make: Callable[[], nn.Module], density: float) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    network = make().eval()
    for parameter in network.parameters():
        if parameter.dim() > 1:
            scatter_zeros_(parameter, density)
    return network, network


@torch.no_grad()
def scatter_zeros_(weight: nn.Parameter, density: float) -> None:
    """Set all weights but a random fraction `density` of them to zero."""
    kept = max(1, round(density * weight.numel()))
    order = torch.randperm(weight.numel(), generator=torch.Generator().manual_seed(0))
    weight.view(-1)[order[kept:]] = 0.0


NETWORKS = (
    _trained("MNIST", "mnist", "mnist"),
    _trained("Fashion-MNIST", "fashion-mnist", "fashion-mnist"),
    _trained("SDD", "sdd", "sdd"),
    _trained("PENDIGITS", "pendigits", "pendigits"),
    _trained("CIFAR-10", "cifar-10", "cifar-10"),
    _trained("LeNet-5, single weights", "lenet5-single", "mnist"),
    _trained("LeNet-300-100, single weights", "perceptron-single", "lenet-300-100"),
    SparseNetwork("ResNet-18, 90 % random zeros", partial(_scattered, residual_network, 0.1), (3, 64, 64)),
    SparseNetwork("perceptron 4096 wide, 95 % random zeros", partial(_scattered, perceptron, 0.05), (784,)),
)
