"""Networks from the files of runs, and their comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from gossamer.errors import GossamerError
from gossamer.measurement import Measurement, latencies, measure
from gossamer.store import load, read_manifest
from gossamer_lab.networks import build, example_input
from gossamer_lab.training import RunDirectory, TrainingConfig

__all__ = ["Comparison", "Contender", "StoredNetwork", "compare", "open_network", "open_network_of"]

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
class Contender:
    """A form of a network to compare with others.

    Attributes:
        model: What is called.
        weights: Weights that it computes with.
        macs: Multiplications of weights for one input.
        size: Bytes of its file; None if it has none.
    """

    model: nn.Module
    weights: int
    macs: int
    size: int | None

    @classmethod
    def dense(cls, model: nn.Module, example: Tensor, size: int | None) -> Contender:
        """A network that is computed with its zeros."""
        total = measure(model, example).total
        return cls(model, total.weights, total.macs, size)

    @classmethod
    def sparse(cls, model: nn.Module, original: nn.Module, example: Tensor, size: int | None) -> Contender:
        """A form of `original` that computes only with its non-zeros."""
        total = measure(original, example).total
        return cls(model, total.nonzeros, total.macs_nonzero, size)


@dataclass(frozen=True)
class Comparison:
    """A form of a network and its latency, in seconds, by batch size."""

    name: str
    contender: Contender
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


def open_network_of(run: RunDirectory, file: Path) -> StoredNetwork:
    """Load the network of a run from one of its files, which has to be of the run's configuration."""
    stored = open_network(file)
    if run.config.exists():
        config = TrainingConfig.from_dict(read_manifest(file).provenance["config"])
        if differences := run.read_config().differences(config):
            raise GossamerError(
                f"{file} does not belong to the {run.config.name} beside it, which has {', '.join(differences)}. "
                f"Restore it from a copy, or delete {run.result.name} and resume the run, which writes it again."
            )
    return stored


def compare(contenders: Mapping[str, Contender], example: Tensor) -> list[Comparison]:
    """Time the forward passes of networks, interleaved."""
    models = [contender.model for contender in contenders.values()]
    batches = {size: example[:1].expand(size, *example.shape[1:]).contiguous() for size in _BATCHES}
    seconds = {size: latencies(models, batch) for size, batch in batches.items()}
    return [
        Comparison(name, contender, {size: taken[number] for size, taken in seconds.items()})
        for number, (name, contender) in enumerate(contenders.items())
    ]
