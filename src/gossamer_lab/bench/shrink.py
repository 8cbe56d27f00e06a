"""Benchmark `shrink`: time and memory of `gossamer.shrink`."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from torch import nn

from gossamer.shrinking import shrink
from gossamer_lab.bench.memory import peak_extra_bytes
from gossamer_lab.bench.models import perceptron
from gossamer_lab.bench.result import Machine, Result, Value

__all__ = ["shrink_cost"]

_WEIGHTS = (10**6, 10**7, 3 * 10**7, 10**8)


def shrink_cost(weights: Sequence[int] = _WEIGHTS) -> Result:
    """Shrink perceptrons with half of their hidden units dead.

    Args:
        weights: Approximate numbers of weights.
    """
    _row(10**5)  # warm-up: the first trace imports parts of PyTorch
    return Result(
        name="shrink",
        title="time and memory of `shrink`",
        note=(
            "memory: additional peak memory, including the returned network, relative to the model's weights. One run "
            "each."
        ),
        machine=Machine.here(),
        rows=tuple(_row(count) for count in weights),
    )


@torch.no_grad()
def _row(weights: int) -> dict[str, Value]:
    width = round((weights + 397**2) ** 0.5 - 397)  # width^2 + 794 width = weights
    model = perceptron(width).eval()
    for layer in list(model.modules())[1:-1]:
        if isinstance(layer, nn.Linear):
            for parameter in layer.parameters():
                parameter[::2] = 0.0
    example = torch.randn(2, 784)
    seconds = 0.0

    def call() -> None:
        nonlocal seconds
        started = time.perf_counter()
        shrink(model, example)
        seconds = time.perf_counter() - started

    extra = peak_extra_bytes(call)
    total = sum(parameter.numel() for parameter in model.parameters() if parameter.dim() > 1)
    return {
        "weights": total,
        "seconds": seconds,
        "ns per weight": 1e9 * seconds / total,
        "memory": None if extra is None else extra / (4 * total),
    }
