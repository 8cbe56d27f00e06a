"""The proximal step on units, in PyTorch operations, and norms that are kept through a proximal step.

For each unit u, whose slices of several parameters are concatenated to w_u:

    w_u <- argmin_x  coefficient_u * penalty(x) + sum_i (x_i - w_u,i)^2 / (2 step_i)

step_i is the step of the parameter that holds weight i, so units may span parameter groups with different learning
rates. What follows a unit is set to zero with it. Parameters without a gradient keep their units as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from gossamer.layers import Weight, local_part
from gossamer.proximal.fused import Move
from gossamer.regularizers import Bucket, KeptNorm, SplitBucket, Units
from gossamer.regularizers.shards import own_indices
from gossamer.shrinking.units import NONE

__all__ = ["norms_before", "restore_norms_", "unit_step_"]


def norms_before(units: Units, moves: Iterable[Move]) -> list[tuple[KeptNorm, Tensor]]:
    """The norms of the weights that keep them, as far as they are about to move."""
    moving = {id(move.weight) for move in moves}
    kept = [(kept, units.parameter(kept.weight)) for kept in units.kept_norms]
    return [(own, own.norms(weight)) for own, weight in kept if id(weight) in moving]


def restore_norms_(units: Units, norms: Iterable[tuple[KeptNorm, Tensor]]) -> None:
    """Give the weights back the norms that they had."""
    for kept, before in norms:
        kept.restore_(units.parameter(kept.weight), before)


def unit_step_(units: Units, moves: Sequence[Move]) -> None:
    """The proximal step of all terms on units, in place. All processes that share the weights have to call this."""
    by_weight = {id(move.weight): move for move in moves}
    dead = torch.zeros(1 + max((int(s.units.max()) for s in units.slices), default=NONE), dtype=torch.bool)
    for bucket in units.local:
        own = [by_weight.get(id(units.parameter(weight))) for weight in bucket.weights]
        present = [move for move in own if move is not None]
        if len(present) == len(own):
            rows = _moved(units, bucket, present)
            bucket.scatter_(units.parameter, rows)
            dead[bucket.units] = ~bucket.alive(rows).cpu()
    for slices in units.slices:
        weight = units.parameter(slices.weight)
        if not slices.holds and id(weight) in by_weight:
            gone = torch.nonzero(slices.members_of(dead)[own_indices(weight, slices.dim)]).flatten()
            if len(gone):
                part = local_part(weight)
                part.index_fill_(slices.dim, gone.to(part.device), 0.0)


def _moved(units: Units, bucket: Bucket | SplitBucket, moves: Sequence[Move]) -> Tensor:
    """The matrix of a bucket after the proximal steps of all terms, one after the other."""
    rows = bucket.gather(units.parameter)
    rows = rows.to(rows.dtype if rows.dtype == torch.float64 else torch.float32)
    step, waits = _steps(units, bucket, moves, rows)
    moved = rows if waits is None else rows.masked_fill(waits, 0.0)
    for term in units.terms:
        moved = bucket.kernel(term.penalty, moved, (term.coefficient(bucket) * step).to(rows.dtype))
    return moved if waits is None else torch.where(waits, rows, moved)


def _steps(
    units: Units, bucket: Bucket | SplitBucket, moves: Sequence[Move], rows: Tensor
) -> tuple[Tensor, Tensor | None]:
    """The step of each weight, and where weights wait for their first gradient; one number if all are the same."""
    sizes = {move.step for move in moves}
    if len(sizes) == 1 and all(move.metric is None for move in moves):
        return torch.tensor(sizes.pop(), dtype=torch.float64, device=rows.device), None
    by_weight = {id(move.weight): move for move in moves}

    def steps(weight: Weight) -> Tensor:
        move = by_weight[id(units.parameter(weight))]
        inverse = torch.ones_like(move.weight) if move.metric is None else move.metric.inverse()
        return local_part(inverse).double() * move.step

    found = bucket.gather(steps)
    return found, found == 0
