"""Benchmark `unit-step`: the proximal step on removable units against that on groups per layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gossamer.proximal import attach
from gossamer.regularizers import Regularizer, integrated_tl1, unit_tl1
from gossamer_lab.bench.models import WORKLOADS, Workload
from gossamer_lab.bench.result import Machine, Result, Value
from gossamer_lab.bench.timing import time_interleaved

__all__ = ["unit_step"]

_STRENGTH = 1e-5
_STEPS = 10  # of the optimizer before: its second moments are means over several gradients
_OPTIMIZERS: dict[str, Callable[[nn.Module], Optimizer]] = {
    "SGD": lambda model: torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9),
    "Adam": lambda model: torch.optim.Adam(model.parameters(), lr=1e-3),
}
_REGULARIZERS: dict[str, Callable[[nn.Module, Tensor], Regularizer]] = {
    "per layer": lambda model, example: integrated_tl1(model, _STRENGTH),
    "units": lambda model, example: integrated_tl1(model, _STRENGTH, groups="units", example=example),
    "unit Tl1": lambda model, example: unit_tl1(model, _STRENGTH, example=example),
}


def unit_step(workloads: Sequence[Workload] = WORKLOADS, seconds: float = 2.0) -> Result:
    """Time the proximal step alone, behind SGD and behind Adam.

    Args:
        workloads: Networks.
        seconds: Time budget per candidate.
    """
    return Result(
        name="unit-step",
        title="the proximal step on removable units",
        note=(
            "ms: the proximal step of integrated Tl1 with groups per layer. units, unit Tl1: integrated Tl1 with "
            "groups of units, and unit Tl1, relative to that. Norms in front of normalisations are kept."
        ),
        machine=Machine.here(),
        rows=tuple(_row(workload, name, seconds) for workload in workloads for name in _OPTIMIZERS),
    )


def _row(workload: Workload, optimizer: str, seconds: float) -> dict[str, Value]:
    candidates = {name: _step(workload, make, _OPTIMIZERS[optimizer]) for name, make in _REGULARIZERS.items()}
    times = time_interleaved(candidates, seconds=seconds, least=5)
    base = times["per layer"].median
    ratios = {name: times[name].median / base for name in ("units", "unit Tl1")}
    return {"network": workload.name, "optimizer": optimizer, "ms": 1e3 * base, **ratios}


def _step(
    workload: Workload,
    make: Callable[[nn.Module, Tensor], Regularizer],
    make_optimizer: Callable[[nn.Module], Optimizer],
) -> Callable[[], object]:
    torch.manual_seed(0)
    model = workload.build()
    optimizer = make_optimizer(model)
    handle = attach(optimizer, make(model, workload.batch(2)[0]))
    for _ in range(_STEPS):
        for parameter in model.parameters():
            parameter.grad = 1e-3 * torch.randn_like(parameter)
        optimizer.step()
    return lambda: handle.after_step(optimizer, (), {})
