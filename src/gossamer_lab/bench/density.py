"""Benchmark `density`: single layers over the fraction of their weights that are not zero."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from gossamer_lab.bench.engines import Call, Engine, in_native, in_onnx_runtime, in_openvino, in_pytorch
from gossamer_lab.bench.journal import Journal, Row
from gossamer_lab.bench.networks import scatter_zeros_
from gossamer_lab.bench.result import Machine, Result, Value
from gossamer_lab.bench.timing import time_bursts

__all__ = ["DENSITIES", "LAYERS", "Layer", "crossover", "density_column", "density_sweep"]


@dataclass(frozen=True)
class Layer:
    """A layer and the shape of its input."""

    name: str
    build: Callable[[], nn.Module]
    shape: tuple[int, ...]


LAYERS = (
    Layer("3x3 convolution 64 -> 64 on 32x32", lambda: nn.Conv2d(64, 64, 3, padding=1), (64, 32, 32)),
    Layer("3x3 convolution 32 -> 64 on 16x16", lambda: nn.Conv2d(32, 64, 3, padding=1), (32, 16, 16)),
    Layer("3x3 convolution 64 -> 96 on 8x8", lambda: nn.Conv2d(64, 96, 3, padding=1), (64, 8, 8)),
    Layer("1x1 convolution 128 -> 256 on 14x14", lambda: nn.Conv2d(128, 256, 1), (128, 14, 14)),
    Layer("linear 1024 -> 1024", lambda: nn.Linear(1024, 1024), (1024,)),
    Layer("linear 4096 -> 4096", lambda: nn.Linear(4096, 4096), (4096,)),
)
DENSITIES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
# Engines that multiply all weights. They take the same time at any density.
_OTHERS: dict[str, Engine] = {"ONNX Runtime": in_onnx_runtime, "OpenVINO": in_openvino, "PyTorch": in_pytorch}


def density_sweep(
    layers: Sequence[Layer] = LAYERS,
    densities: Sequence[float] = DENSITIES,
    batches: Sequence[int] = (1, 64),
    seconds: float = 0.2,
    journal: Journal | None = None,
) -> Result:
    """Time layers with random zeros in `gossamer.native` and in engines that multiply all weights; one thread.

    Args:
        layers: Layers.
        densities: Fractions of weights that are not zero.
        batches: Batch sizes.
        seconds: Time budget per candidate.
        journal: Where measurements are written as they come.
    """
    journal = journal or Journal()
    rows: list[Row] = []
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for layer in layers:
            for batch in batches:
                rows += _rows(layer, batch, densities, seconds, journal)
    finally:
        torch.set_num_threads(before)
    return Result(
        name="density",
        title="speed-up of `gossamer.native` over engines that multiply all weights, by density",
        note=(
            "ms: native at 10 %. Columns in percent: time of the other engine relative to native, in lower quartiles "
            "of interleaved bursts, where so many of the weights are not zero, scattered at random. crossover: the "
            "density at which both take the same time, interpolated; empty if native is faster at all of them. One "
            "thread."
        ),
        machine=Machine.here(),
        rows=tuple(rows),
    )


def density_column(density: float) -> str:
    """The name of the column of a density."""
    return f"{100 * density:g} %"


def crossover(speedups: Sequence[tuple[float, float]]) -> float | None:
    """The density, in percent, at which the speed-up falls below 1, between two that were measured; or None.

    Args:
        speedups: Densities, ascending, and speed-ups. Between them, both are interpolated as powers of each other.
    """
    for (low, faster), (high, slower) in pairwise(speedups):
        if faster >= 1 > slower:
            share = math.log(faster) / math.log(faster / slower)
            return 100 * low * math.pow(high / low, share)
    return None


def _rows(layer: Layer, batch: int, densities: Sequence[float], seconds: float, journal: Journal) -> list[Row]:
    images = torch.randn(batch, *layer.shape, generator=torch.Generator().manual_seed(0))
    others = _Lazy(layer, images)
    measured = {
        density: journal.measured(
            f"{layer.name}, batch {batch}, {density_column(density)}",
            lambda density=density: _times(layer, images, density, others(), seconds),  # type: ignore[misc]
        )
        for density in densities
    }
    names = [name for name in _OTHERS if all(name in times for times in measured.values())]
    return [_row(layer, batch, name, measured) for name in names]


class _Lazy:
    """The layer in the other engines, made when the first density is measured."""

    def __init__(self, layer: Layer, images: Tensor) -> None:
        self._layer, self._images = layer, images
        self._calls: dict[str, Call] = {}

    def __call__(self) -> dict[str, Call]:
        if not self._calls:
            torch.manual_seed(0)
            network = nn.Sequential(self._layer.build()).eval()
            calls = {name: engine(network, self._images, 1) for name, engine in _OTHERS.items()}
            self._calls = {name: call for name, call in calls.items() if call is not None}
        return self._calls


def _times(layer: Layer, images: Tensor, density: float, others: dict[str, Call], seconds: float) -> Row:
    """Milliseconds of each engine."""
    torch.manual_seed(0)
    network = nn.Sequential(layer.build()).eval()
    scatter_zeros_(network[0].weight, density)  # type: ignore[arg-type]
    times = time_bursts({**others, "native": in_native(network, images, 1)}, seconds=seconds)
    return {name: 1e3 * timing.low for name, timing in times.items()}


def _row(layer: Layer, batch: int, other: str, measured: dict[float, Row]) -> Row:
    speedups = [(density, _float(times[other]) / _float(times["native"])) for density, times in measured.items()]
    middle = min(measured, key=lambda density: abs(density - 0.1))
    row: Row = {"layer": layer.name, "batch": batch, "against": other, "ms": measured[middle]["native"]}
    row |= {density_column(density): speedup for density, speedup in speedups}
    return row | {"crossover": crossover(speedups)}


def _float(value: Value) -> float:
    assert isinstance(value, float)
    return value
