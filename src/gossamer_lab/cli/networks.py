"""Networks from the files of runs, and their comparison."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from gossamer.errors import GossamerError
from gossamer.measurement import Measurement, latencies, measure
from gossamer.store import load, read_manifest
from gossamer_lab.networks import build, example_input

__all__ = ["Comparison", "StoredNetwork", "compare", "open_network"]

# Batch sizes of the timed forward passes.
_BATCHES = (1, 64)


@dataclass(frozen=True)
class StoredNetwork:
    """A network from a file, with the full network that its training started from."""

    model: nn.Module
    full: nn.Module
    example: Tensor

    @property
    def measurement(self) -> Measurement:
        """The measurement relative to the full network."""
        return measure(self.model, self.example, removal=True).against(measure(self.full, self.example))


@dataclass(frozen=True)
class Comparison:
    """Sizes and latencies of a network.

    Attributes:
        name: Label.
        weights: Number of weights, zeros included.
        macs: MACs of one input.
        file_bytes: Size of its file.
        seconds: Latency by batch size.
    """

    name: str
    weights: int
    macs: int
    file_bytes: int
    seconds: dict[int, float]


def open_network(path: Path) -> StoredNetwork:
    """Load a network file of `gossamer train` or `gossamer shrink`."""
    config = read_manifest(path).provenance.get("config")
    if not isinstance(config, dict) or not isinstance(config.get("dataset"), str):
        raise GossamerError(
            f"{path} was not written by `gossamer train`, so the class of its network is unknown. "
            "In Python, use gossamer.measure(gossamer.load(path, Net()), example)."
        )
    name = str(config.get("network") or config["dataset"])
    full = build(name, torch.Generator().manual_seed(0))
    model = load(path, build(name, torch.Generator().manual_seed(0)))
    return StoredNetwork(model, full, example_input(name))


def compare(networks: dict[str, tuple[nn.Module, Path]], example: Tensor) -> list[Comparison]:
    """Measure networks; their forward passes are timed interleaved."""
    models = [model for model, _ in networks.values()]
    batches = {size: example[:1].expand(size, *example.shape[1:]).contiguous() for size in _BATCHES}
    seconds = {size: latencies(models, batch) for size, batch in batches.items()}
    comparisons = []
    for index, (name, (model, file)) in enumerate(networks.items()):
        total = measure(model, example).total
        times = {size: taken[index] for size, taken in seconds.items()}
        comparisons.append(Comparison(name, total.weights, total.macs, file.stat().st_size, times))
    return comparisons
