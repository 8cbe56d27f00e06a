"""Question f: how does the cost of the proximal step grow with the weights, and with the tensors they are in?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gossamer.proximal import attach
from gossamer.regularizers import integrated_tl1
from gossamer_lab.bench.result import Machine, Result, Value
from gossamer_lab.bench.timing import take_turns

__all__ = ["scaling"]

_WEIGHTS = (10**5, 10**6, 10**7, 10**8)
_TENSORS = (10, 100, 1000)


def scaling(
    weights: Sequence[int] = _WEIGHTS,
    tensors: Sequence[int] = _TENSORS,
    in_tensors: int = 10**7,
    seconds: float = 2.0,
) -> Result:
    """Integrated Tl1 behind an optimizer that does nothing else, on square matrices.

    Args:
        weights: numbers of weights, each in ten tensors.
        tensors: numbers of tensors, with `in_tensors` weights in all.
        in_tensors: see there.
        seconds: of measuring for each size.
    """
    sizes = [(count, 10) for count in weights] + [(in_tensors, count) for count in tensors]
    rows: list[dict[str, Value]] = []
    for count, parts in sizes:
        step, total, copy = _step(count, parts)
        times = take_turns({"step": step, "copy": copy}, seconds=seconds)
        row: dict[str, Value] = {"weights": total, "tensors": parts, **times["step"].cells()}
        row["ns per weight"] = 1e9 * times["step"].median / total
        row["copies"] = times["step"].median / times["copy"].median
        rows.append(row)
    return Result(
        question="f",
        title="the cost of the proximal step as models grow",
        note="ns per weight is constant where the cost is linear. copies: time over that of a copy of the weights.",
        machine=Machine.here(),
        rows=tuple(rows),
    )


class _Still(Optimizer):
    """An optimizer that leaves the weights where they are, so that its step is the proximal step alone."""

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        super().__init__(parameters, {"lr": 1e-2})

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        """Do nothing."""


def _step(weights: int, tensors: int) -> tuple[Callable[[], object], int, Callable[[], object]]:
    width = max(1, round((weights / tensors) ** 0.5))
    model = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(tensors)))
    optimizer = _Still(model.parameters())
    attach(optimizer, integrated_tl1(model, 1e-4), compile=True)
    for parameter in model.parameters():
        parameter.grad = torch.zeros(1).expand_as(parameter)
    sources = [parameter.detach() for parameter in model.parameters()]
    targets = [torch.empty_like(source) for source in sources]
    return optimizer.step, tensors * width * width, lambda: torch._foreach_copy_(targets, sources)
