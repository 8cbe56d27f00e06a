"""Benchmark `scaling`: the cost of the proximal step over the numbers of weights and tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gossamer.proximal import attach
from gossamer.regularizers import integrated_tl1
from gossamer_lab.bench.result import Machine, Result, Value
from gossamer_lab.bench.timing import time_interleaved

__all__ = ["scaling"]

_WEIGHTS = (10**5, 10**6, 10**7, 10**8)
_TENSORS = (10, 100, 1000)


def scaling(
    weights: Sequence[int] = _WEIGHTS,
    tensors: Sequence[int] = _TENSORS,
    in_tensors: int = 10**7,
    seconds: float = 2.0,
) -> Result:
    """Time integrated Tl1 behind an optimizer that does nothing, on square matrices.

    Args:
        weights: Numbers of weights, in ten tensors each.
        tensors: Numbers of tensors, with `in_tensors` weights in total.
        in_tensors: Total number of weights for `tensors`.
        seconds: Time budget per size.
    """
    sizes = [(count, 10) for count in weights] + [(in_tensors, count) for count in tensors]
    rows: list[dict[str, Value]] = []
    for count, parts in sizes:
        step, total, copy = _step(count, parts)
        times = time_interleaved({"step": step, "copy": copy}, seconds=seconds)
        row: dict[str, Value] = {"weights": total, "tensors": parts, **times["step"].cells()}
        row["ns per weight"] = 1e9 * times["step"].median / total
        row["vs copy"] = times["step"].median / times["copy"].median
        rows.append(row)
    return Result(
        name="scaling",
        title="cost of the proximal step over the size of the model",
        note="ns per weight is constant where the cost is linear. vs copy: time relative to a copy of the weights.",
        machine=Machine.here(),
        rows=tuple(rows),
    )


class _NoOptimizer(Optimizer):
    """An optimizer that changes nothing, so that its step is the proximal step alone."""

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        super().__init__(parameters, {"lr": 1e-2})

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        """Do nothing."""


def _step(weights: int, tensors: int) -> tuple[Callable[[], object], int, Callable[[], object]]:
    width = max(1, round((weights / tensors) ** 0.5))
    model = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(tensors)))
    optimizer = _NoOptimizer(model.parameters())
    # It moves no weight, so its step size cannot be measured.
    attach(optimizer, integrated_tl1(model, 1e-4), compile=True, step_size=lambda _, group, __: group["lr"])
    for parameter in model.parameters():
        parameter.grad = torch.zeros(1).expand_as(parameter)
    sources = [parameter.detach() for parameter in model.parameters()]
    targets = [torch.empty_like(source) for source in sources]
    return optimizer.step, tensors * width * width, lambda: torch._foreach_copy_(targets, sources)
