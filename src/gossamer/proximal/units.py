"""The proximal step on units, in PyTorch operations, and norms that are kept through a proximal step.

For each unit u, whose slices of several parameters are concatenated to w_u:

    w_u <- argmin_x  coefficient_u * penalty(x) + sum_i (x_i - w_u,i)^2 / (2 step_i)

step_i is the step of the parameter that holds weight i, so units may span parameter groups with different learning
rates. What follows a unit is set to zero with it. Parameters without a gradient keep their units as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

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
    for bucket, common in zip(units.local, _common_steps(units, by_weight), strict=True):
        if common.all_move:
            rows = _moved(units, bucket, by_weight, common.step)
            bucket.scatter_(units.parameter, rows)
            dead[bucket.units] = ~bucket.alive(rows).cpu()
    for slices in units.slices:
        weight = units.parameter(slices.weight)
        if not slices.holds and id(weight) in by_weight:
            gone = torch.nonzero(slices.members_of(dead)[own_indices(weight, slices.dim)]).flatten()
            if len(gone):
                part = local_part(weight)
                part.index_fill_(slices.dim, gone.to(part.device), 0.0)


class _Common(NamedTuple):
    """What the members of a bucket have in common: whether all of them move, and their step (None: they differ)."""

    all_move: bool
    step: float | None


def _common_steps(units: Units, by_weight: Mapping[int, Move]) -> list[_Common]:
    """For each bucket; where it reaches across the stages of a pipeline, the same in all processes."""
    found = [_summary([by_weight.get(id(units.parameter(weight))) for weight in own.weights]) for own in units.local]
    across = [
        i for i, bucket in enumerate(units.local) if isinstance(bucket, SplitBucket) and bucket.across is not None
    ]
    if across and units.stage is not None:
        for i, numbers in zip(across, units.stage.largest([found[i] for i in across]), strict=True):
            found[i] = numbers
    return [
        _Common(not missing, largest if not in_metric and largest == -negative else None)
        for missing, in_metric, largest, negative in found
    ]


def _summary(moves: Sequence[Move | None]) -> list[float]:
    """Whether any is missing, whether any has a metric, the largest step, and minus the smallest one."""
    present = [move for move in moves if move is not None]
    steps = [float(move.step) for move in present]
    in_metric = any(move.metric is not None for move in present)
    missing = len(present) < len(moves)
    return [missing, in_metric, max(steps, default=-math.inf), -min(steps, default=math.inf)]


def _moved(units: Units, bucket: Bucket | SplitBucket, by_weight: Mapping[int, Move], common: float | None) -> Tensor:
    """The matrix of a bucket after the proximal steps of all terms, one after the other."""
    rows = bucket.gather(units.parameter)
    rows = rows.to(rows.dtype if rows.dtype == torch.float64 else torch.float32)
    step, waits = _steps(units, bucket, by_weight, common, rows)
    moved = rows if waits is None else rows.masked_fill(waits, 0.0)
    for term in units.terms:
        moved = bucket.kernel(term.penalty, moved, (term.coefficient(bucket) * step).to(rows.dtype))
    return moved if waits is None else torch.where(waits, rows, moved)


def _steps(
    units: Units, bucket: Bucket | SplitBucket, by_weight: Mapping[int, Move], common: float | None, rows: Tensor
) -> tuple[Tensor, Tensor | None]:
    """The step of each weight, and where weights wait for their first gradient; one number if all are the same."""
    if common is not None:
        return torch.tensor(common, dtype=torch.float64, device=rows.device), None

    def steps(weight: Weight) -> Tensor:
        move = by_weight[id(units.parameter(weight))]
        inverse = torch.ones_like(move.weight) if move.metric is None else move.metric.inverse()
        return local_part(inverse).double() * move.step

    found = bucket.gather(steps)
    return found, found == 0
