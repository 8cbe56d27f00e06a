"""Cuts: which indices of which dimensions of a tensor stay, and how to take them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from gossamer.shrinking.analysis import Analysis
from gossamer.shrinking.solve import Decision

__all__ = ["Cuts", "decide_cuts", "packed", "take"]

Cuts = Mapping[int, Tensor]
"""Dimension to kept indices. For the weight of a grouped convolution dimension 1 holds a row for each kept group."""


def take(tensor: Tensor, cuts: Cuts) -> Tensor:
    """The part of a tensor that stays; works for anything shaped like the parameter (gradients, moments)."""
    for dim, index in sorted(cuts.items()):
        index = index.to(tensor.device)
        tensor = tensor.index_select(dim, index) if index.dim() == 1 else _take_grouped(tensor, index)
    return tensor


def packed(part: Tensor, whole: Tensor) -> Tensor:
    """The part without gaps, in the memory format of the tensor that it was taken from."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    last = formats.get(whole.dim())
    if last is not None and not whole.is_contiguous() and whole.is_contiguous(memory_format=last):
        return part.contiguous(memory_format=last)
    return part.contiguous()


def _take_grouped(weight: Tensor, index: Tensor) -> Tensor:
    """Another choice of columns for each block of rows."""
    groups, kept = index.shape
    blocks = weight.reshape(groups, weight.size(0) // groups, *weight.shape[1:])
    columns = index.view(groups, 1, kept, *(1,) * (weight.dim() - 2))
    taken = blocks.gather(2, columns.expand(-1, blocks.size(1), -1, *blocks.shape[3:]))
    return taken.reshape(weight.size(0), kept, *weight.shape[2:])


def decide_cuts(run: Analysis, decision: Decision) -> dict[str, dict[int, Tensor]]:
    """The cuts of every parameter and buffer that loses anything."""
    cuts: dict[str, dict[int, Tensor]] = {}
    for name, axes in run.axes.items():
        for dim, labels in axes.items():
            _add(cuts, name, dim, decision.lives(labels))
    for name, labels in run.elements.items():
        alive = decision.lives(labels)
        for dim in range(alive.dim()):
            others = [d for d in range(alive.dim()) if d != dim]
            _add(cuts, name, dim, alive.amax(others) if others else alive)
    return cuts


def _add(cuts: dict[str, dict[int, Tensor]], name: str, dim: int, alive: Tensor) -> None:
    if bool(alive.all()):
        return
    if alive.dim() == 1:
        index = torch.nonzero(alive).flatten()
    else:
        rows = alive[alive.any(1)]
        index = torch.nonzero(rows)[:, 1].view(len(rows), -1)
    cuts.setdefault(name, {})[dim] = index
