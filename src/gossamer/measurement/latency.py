"""Latency of forward passes, measured side by side."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median

from torch import nn

from gossamer.example import Example, call_with, evaluating

__all__ = ["latencies"]

_WARM_UP = 3


def latencies(models: Sequence[nn.Module], example: Example, rounds: int = 50) -> list[float]:
    """Seconds of one forward pass of each model on the example: medians over rounds.

    The models take turns in every round, so that other load on the machine affects all of them alike.
    """
    calls = [call_with(model, example) for model in models]
    seconds: list[list[float]] = [[] for _ in models]
    for round_ in range(_WARM_UP + rounds):
        for model, call, found in zip(models, calls, seconds, strict=True):
            with evaluating(model):
                started = time.perf_counter()
                call.run(model)
                elapsed = time.perf_counter() - started
            if round_ >= _WARM_UP:
                found.append(elapsed)
    return [median(found) for found in seconds]
