"""The network without its dead units, saved at the end of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from gossamer.example import Example
from gossamer.measurement import measure
from gossamer.store import save
from gossamer_lab.training.directory import RunDirectory

__all__ = ["ShrunkNetwork", "write_shrunk"]


@dataclass(frozen=True)
class ShrunkNetwork:
    """Sizes of a network without its dead units.

    Attributes:
        weights: Weights of its layers, zeros included, without biases.
        macs: MACs of one input.
        units: Units of each weight layer.
        file_bytes: Size of its file.
        full_file_bytes: Size of the file of the network as trained.
    """

    weights: int
    macs: int
    units: dict[str, int]
    file_bytes: int
    full_file_bytes: int


def write_shrunk(
    network: nn.Module, example: Example, run: RunDirectory, provenance: Mapping[str, Any]
) -> ShrunkNetwork:
    """Save a shrunk network to the run directory and return its sizes."""
    save(network, run.small, sparse=True, provenance=provenance)
    measured = measure(network, example)
    total, units = measured.total, {layer.name: layer.units for layer in measured.layers}
    return ShrunkNetwork(total.weights, total.macs, units, run.small.stat().st_size, run.weights.stat().st_size)
