"""Networks that a training has written, from their files; and what they are beside the network they came from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from gossamer.errors import GossamerError
from gossamer.measurement import Measurement, latencies, measure
from gossamer.store import load, read_manifest
from gossamer_lab.networks import build, example_of

__all__ = ["Comparison", "StoredNetwork", "compare", "open_network"]

# Inputs in a forward pass that is timed.
_BATCHES = (1, 64)


@dataclass(frozen=True)
class StoredNetwork:
    """A network from a file, and the full one that its training began with."""

    model: nn.Module
    full: nn.Module
    example: Tensor

    @property
    def measurement(self) -> Measurement:
        """What is left of the full network."""
        return measure(self.model, self.example, removal=True).against(measure(self.full, self.example))


@dataclass(frozen=True)
class Comparison:
    """One network of several: weights (zero or not), multiply-adds, file, and seconds by inputs in a pass."""

    name: str
    weights: int
    macs: int
    file_bytes: int
    seconds: dict[int, float]


def open_network(path: Path) -> StoredNetwork:
    """Rebuild the network in a file of `gossamer train` or `gossamer shrink`."""
    config = read_manifest(path).provenance.get("config")
    if not isinstance(config, dict) or not isinstance(config.get("dataset"), str):
        raise GossamerError(
            f"{path} was not written by `gossamer train`, so its class is not known here. "
            "In Python: gossamer.measure(gossamer.load(path, Net()), example)."
        )
    name = str(config.get("network") or config["dataset"])
    full = build(name, torch.Generator().manual_seed(0))
    model = load(path, build(name, torch.Generator().manual_seed(0)))
    return StoredNetwork(model, full, example_of(name))


def compare(networks: dict[str, tuple[nn.Module, Path]], example: Tensor) -> list[Comparison]:
    """Measure networks beside each other; their forward passes take turns."""
    models = [model for model, _ in networks.values()]
    batches = {size: example[:1].expand(size, *example.shape[1:]).contiguous() for size in _BATCHES}
    seconds = {size: latencies(models, batch) for size, batch in batches.items()}
    found = []
    for index, (name, (model, file)) in enumerate(networks.items()):
        total = measure(model, example).total
        times = {size: taken[index] for size, taken in seconds.items()}
        found.append(Comparison(name, total.weights, total.macs, file.stat().st_size, times))
    return found
