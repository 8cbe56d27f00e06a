"""Benchmark `adaptive-step`: the overhead of a regularizer behind SGD and behind Adam, in its adaptive metric."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from gossamer.proximal import attach
from gossamer.regularizers import integrated_tl1
from gossamer_lab.bench.result import Machine, Result, Value
from gossamer_lab.bench.timing import Added, time_interleaved

__all__ = ["adaptive_step"]

_STRENGTH = 1e-4
_INPUTS = 64
_BATCH = 64
_OPTIMIZERS: dict[str, Callable[[nn.Module], Optimizer]] = {
    "SGD": lambda model: torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9),
    "Adam": lambda model: torch.optim.Adam(model.parameters(), lr=1e-3),
}


def adaptive_step(widths: Sequence[int] = (256, 1024, 2048), seconds: float = 5.0) -> Result:
    """Time the training step of perceptrons with SGD and with Adam, without and with integrated transformed l1.

    Args:
        widths: Width of the two hidden layers.
        seconds: Time budget per candidate.
    """
    return Result(
        name="adaptive-step",
        title="a training step of perceptrons with SGD and with Adam",
        note=(
            f"{_INPUTS} inputs, two hidden layers, 10 classes, batch {_BATCH}. ms: step without a regularizer. "
            "relative: step with integrated Tl1 relative to that, by lower quartiles. added µs: the proximal step, "
            "timed inside the optimizer's step. Adam / SGD: ratio of these."
        ),
        machine=Machine.here(),
        rows=tuple(_row(width, seconds) for width in widths),
    )


def _row(width: int, seconds: float) -> dict[str, Value]:
    added = {name: Added() for name in _OPTIMIZERS}
    candidates = {name: _step(width, make) for name, make in _OPTIMIZERS.items()}
    candidates |= {f"{name} +": _step(width, make, added[name]) for name, make in _OPTIMIZERS.items()}
    times = time_interleaved(candidates, seconds=seconds, least=30, most=1000)
    row: dict[str, Value] = {"width": width}
    for name in _OPTIMIZERS:
        row[f"{name} ms"] = 1e3 * times[name].median
        row[f"{name} relative"] = times[f"{name} +"].low / times[name].low
        row[f"{name} added µs"] = 1e6 * added[name].median()
    row["Adam / SGD"] = added["Adam"].median() / added["SGD"].median()
    return row


def _step(width: int, make: Callable[[nn.Module], Optimizer], added: Added | None = None) -> Callable[[], object]:
    """A training step; with a regularizer if there is a clock for what it adds."""
    torch.manual_seed(0)
    layers = [nn.Linear(_INPUTS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)]
    model = nn.Sequential(*layers)
    optimizer = make(model)
    if added is not None:
        optimizer.register_step_post_hook(added.start)
        attach(optimizer, integrated_tl1(model, _STRENGTH))
        optimizer.register_step_post_hook(added.end)
    inputs, labels = torch.randn(_BATCH, _INPUTS), torch.randint(0, 10, (_BATCH,))

    def step() -> None:
        optimizer.zero_grad()
        torch.autograd.backward(cross_entropy(model(inputs), labels))
        optimizer.step()

    return step
