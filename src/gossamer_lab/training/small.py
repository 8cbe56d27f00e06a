"""The end of a training: the network without its dead units, saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from gossamer.example import Example
from gossamer.measurement import measure
from gossamer.store import save
from gossamer_lab.training.directory import RunDirectory

__all__ = ["Small", "write_small"]


@dataclass(frozen=True)
class Small:
    """The small network in numbers.

    Attributes:
        weights: In its weight layers, zero or not, without biases.
        macs: Multiply-adds of one input.
        units: Of each weight layer; those are gone that received nothing and those that nobody read.
        file_bytes: Size of its file.
        full_file_bytes: Size of the file of the network as it was trained.
    """

    weights: int
    macs: int
    units: dict[str, int]
    file_bytes: int
    full_file_bytes: int


def write_small(small: nn.Module, example: Example, run: RunDirectory, provenance: Mapping[str, Any]) -> Small:
    """Save the network without its dead units beside the one that was trained."""
    save(small, run.small, sparse=True, provenance=provenance)
    measured = measure(small, example)
    total, units = measured.total, {layer.name: layer.units for layer in measured.layers}
    return Small(total.weights, total.macs, units, run.small.stat().st_size, run.weights.stat().st_size)
