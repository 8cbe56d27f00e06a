"""How long a forward pass takes, side by side with other networks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median

from torch import nn

from gossamer.example import Example, call_with, evaluating

__all__ = ["latencies"]

_WARM_UP = 3


def latencies(models: Sequence[nn.Module], example: Example, rounds: int = 50) -> list[float]:
    """Seconds of a forward pass of each model on the example: medians over rounds in which each runs once.

    The models take turns, so that whatever else the machine does meets all of them.
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
