"""The network without its dead units, saved at the end of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import nn

from gossamer.example import Example
from gossamer.measurement import Measurement, measure
from gossamer.proximal.approach import require_reachable
from gossamer.regularizers import Regularizer
from gossamer.store import save
from gossamer.targets import Target
from gossamer_lab.training.config import TrainingConfig
from gossamer_lab.training.directory import RunDirectory

__all__ = ["ShrunkNetwork", "provenance_of", "require_reachable_target", "target_of", "write_shrunk"]

_DIGITS = 128  # by which numbers in the provenance may get longer during training


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


def provenance_of(config: TrainingConfig, measurement: Measurement) -> dict[str, Any]:
    """Return what the files of a run say about it."""
    return {"config": asdict(config), "measurement": measurement.to_dict()}


def target_of(config: TrainingConfig, model: nn.Module, full: Measurement) -> Target:
    """Return the target of a configuration. Its file says something about the run, too."""
    assert config.target is not None
    kind, value = config.target
    if kind != "bytes":
        return Target(**{kind: value})  # type: ignore[arg-type]
    with TemporaryDirectory() as folder:
        plain, told = Path(folder, "plain"), Path(folder, "told")
        save(model, plain)
        save(model, told, provenance=provenance_of(config, full))
        return Target(bytes=int(value), other_bytes=told.stat().st_size - plain.stat().st_size + _DIGITS)


def require_reachable_target(config: TrainingConfig, regularizer: Regularizer | None, example: Example) -> None:
    """Raise `GossamerError` if the configuration has a target that its network cannot reach."""
    if config.target is not None and regularizer is not None and regularizer.model is not None:
        model = regularizer.model
        require_reachable(target_of(config, model, measure(model, example)), regularizer)


def write_shrunk(
    network: nn.Module, example: Example, run: RunDirectory, provenance: Mapping[str, Any]
) -> ShrunkNetwork:
    """Save a shrunk network to the run directory and return its sizes."""
    save(network, run.small, sparse=True, provenance=provenance)
    measured = measure(network, example)
    total, units = measured.total, {layer.name: layer.units for layer in measured.layers}
    return ShrunkNetwork(total.weights, total.macs, units, run.small.stat().st_size, run.weights.stat().st_size)
