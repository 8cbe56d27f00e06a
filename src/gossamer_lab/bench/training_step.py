"""Benchmark `training-step`: the overhead of a regularizer in a training step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from gossamer.proximal import Compile, attach
from gossamer.regularizers import Regularizer, group_lasso, integrated_tl1
from gossamer_lab.bench.alternatives import NOT_INSTALLED, pat_group_lasso
from gossamer_lab.bench.models import WORKLOADS, Workload
from gossamer_lab.bench.result import Machine, Result, Value
from gossamer_lab.bench.timing import Added, time_interleaved

__all__ = ["training_step"]

_STRENGTH = 1e-5
_LEARNING_RATE = 1e-3


def training_step(workloads: Sequence[Workload] = WORKLOADS, seconds: float = 10.0) -> Result:
    """Time forward, backward and SGD with momentum: without a regularizer, with ours, with PAT's group lasso.

    Args:
        workloads: Networks and batches.
        seconds: Time budget per candidate.
    """
    return Result(
        name="training-step",
        title="a training step with and without a regularizer",
        note=(
            "ms: step without a regularizer. %: overhead of a regularizer, timed inside the optimizer's step (PAT: its "
            "step minus that of the wrapped optimizer). by difference: from the medians of whole steps instead."
        ),
        machine=Machine.here(),
        rows=tuple(_row(workload, seconds) for workload in workloads),
    )


def _row(workload: Workload, seconds: float) -> dict[str, Value]:
    added = {name: Added() for name in ("integrated Tl1", "not compiled", "group lasso", "PAT group lasso")}
    candidates = {
        "without": _step(workload, lambda model: _sgd(model).step),
        "integrated Tl1": _step(workload, lambda model: _ours(model, _integrated, "auto", added["integrated Tl1"])),
        "not compiled": _step(workload, lambda model: _ours(model, _integrated, False, added["not compiled"])),
        "group lasso": _step(workload, lambda model: _ours(model, _group_lasso, "auto", added["group lasso"])),
    }
    if pat_group_lasso(workload.build(), _STRENGTH, _LEARNING_RATE) is not None:
        candidates["PAT group lasso"] = _step(workload, lambda model: _pat(model, added["PAT group lasso"]))
    times = time_interleaved(candidates, seconds=seconds, least=15)
    without = times["without"].median

    row: dict[str, Value] = {"network": workload.name, **times["without"].cells()}
    for name, own in added.items():
        row[f"{name} %"] = 100 * own.median() / without if name in candidates else NOT_INSTALLED
    row["integrated Tl1 by difference %"] = 100 * (times["integrated Tl1"].median / without - 1)
    return row


def _step(workload: Workload, optimizer_step: Callable[[nn.Module], Callable[[], object]]) -> Callable[[], object]:
    torch.manual_seed(0)
    model = workload.build()
    update = optimizer_step(model)
    inputs, labels = workload.batch()

    def step() -> None:
        model.zero_grad()
        torch.autograd.backward(cross_entropy(model(inputs), labels))
        update()

    return step


def _sgd(model: nn.Module) -> Optimizer:
    return torch.optim.SGD(model.parameters(), lr=_LEARNING_RATE, momentum=0.9)


def _integrated(model: nn.Module) -> Regularizer:
    return integrated_tl1(model, _STRENGTH)


def _group_lasso(model: nn.Module) -> Regularizer:
    return group_lasso(model, _STRENGTH)


def _ours(
    model: nn.Module, regularizer: Callable[[nn.Module], Regularizer], compiled: Compile, added: Added
) -> Callable[[], object]:
    optimizer = _sgd(model)
    optimizer.register_step_post_hook(added.start)
    attach(optimizer, regularizer(model), compile=compiled)
    optimizer.register_step_post_hook(added.end)
    return optimizer.step


def _pat(model: nn.Module, added: Added) -> Callable[[], object]:
    """Time PAT, which wraps the optimizer and acts before and after its step."""
    optimizer: Any = pat_group_lasso(model, _STRENGTH, _LEARNING_RATE)
    inner = Added()
    optimizer.base_optimizer.register_step_pre_hook(inner.start)
    optimizer.base_optimizer.register_step_post_hook(inner.end)

    def step() -> None:
        added.start()
        optimizer.step()
        added.end()
        added.seconds[-1] -= inner.seconds[-1]

    return step
