"""The proximal steps of a whole model in one call of the native kernel: one pass over each weight, in place.

The kernel takes plain float32 and float64 tensors on the CPU that are dense in memory, with rules of up to two terms:
scalar penalties on weights, and penalties on groups with the same grouping; euclidean or in an adaptive metric. All
recipes have this form. Everything else takes the plain implementation (`gossamer.proximal.plain`), with the same
result up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gossamer.proximal.metric import Metric, Root
from gossamer.proximal.native import Kernel
from gossamer.proximal.table import STEP, WEIGHT, metric_kind, supports, write_record
from gossamer.regularizers import Rule

__all__ = ["FUSED_FROM", "FusedStep", "Move", "step_values", "supports"]

# Weights in total from which `compile="auto"` uses the kernel. For smaller models, compiling it for the first time
# takes longer than all plain steps of a short training (docs/performance.md).
FUSED_FROM = 5_000

_WEIGHTS_PER_THREAD = 16_384  # starting a thread costs as much as some ten thousand weights


class Move(NamedTuple):
    """A proximal step to take: its rule, its weight, and its size step / d_i, strength included."""

    rule: Rule
    weight: Tensor
    step: float | Tensor
    metric: Metric | None = None


class _Row(NamedTuple):
    """What a record of the table depends on."""

    rule: Rule
    weight: Tensor
    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype
    metric_kind: int
    fused: bool

    def matches(self, move: Move) -> bool:
        """Whether the record still describes the move. New data behind a parameter may be at the same address."""
        rule, weight, shape, stride, dtype, kind, fused = self
        if rule is not move.rule or weight is not move.weight or kind != metric_kind(move.metric):
            return False
        if weight.shape != shape or weight.stride() != stride or weight.dtype is not dtype:
            return False
        if move.metric is None or not fused:
            return True
        metric = _tensor(move.metric)
        return metric.shape == shape and metric.stride() == stride and metric.dtype is dtype


class FusedStep:
    """The kernel and the table of the weights it works on.

    A step only writes addresses and step sizes; it allocates nothing that grows with the weights.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.tables = 0  # how often the table was built
        self._kernel = kernel
        self._rows: list[_Row] = []
        self._all_fused = False
        self._table = np.zeros(0, WEIGHT)
        self._steps: Any = np.zeros(0, np.uint8)
        self._pack = Struct("").pack_into
        self._addresses = (0, 0)
        self._weights = 0

    def take(self, moves: Sequence[Move]) -> tuple[list[Move], bool]:
        """Take the moves that the kernel supports; return the others, and False if a weight may not be finite."""
        rows = self._rows
        if len(rows) != len(moves) or not all(row.matches(move) for row, move in zip(rows, moves, strict=True)):
            self._build_table(moves)
        fused, others = self._split(moves)
        if not fused:
            return others, True
        values: list[Any] = []
        for move in fused:
            values += step_values(move)
        self._pack(self._steps, 0, *values)
        threads = min(torch.get_num_threads(), 1 + self._weights // _WEIGHTS_PER_THREAD)
        finite = self._kernel(*self._addresses, len(fused), threads)
        # Autograd must see an in-place operation.
        torch.autograd.graph.increment_version([move.weight for move in fused])
        return others, bool(finite)

    def _split(self, moves: Sequence[Move]) -> tuple[Sequence[Move], list[Move]]:
        if self._all_fused:
            return moves, []
        pairs = list(zip(moves, self._rows, strict=True))
        return [move for move, row in pairs if row.fused], [move for move, row in pairs if not row.fused]

    def _build_table(self, moves: Sequence[Move]) -> None:
        self.tables += 1
        self._rows = [
            _Row(rule, weight, weight.shape, weight.stride(), weight.dtype, metric_kind(metric), fused)
            for rule, weight, _, metric in moves
            for fused in [supports(rule, weight, metric)]
        ]
        self._all_fused = all(row.fused for row in self._rows)
        fused, _ = self._split(moves)
        self._weights = sum(move.weight.numel() for move in fused)
        self._table = np.zeros(len(fused), WEIGHT)
        for record, move in zip(self._table, fused, strict=True):
            write_record(record, move.rule, move.weight, move.metric)
        layout = Struct(STEP * len(fused))
        self._steps, self._pack = np.zeros(layout.size, np.uint8), layout.pack_into
        self._addresses = self._table.ctypes.data, self._steps.ctypes.data


def step_values(move: Move) -> tuple[Any, ...]:
    """What the kernel reads at every step: addresses of the weight and its metric, size, correction, eps."""
    _, weight, step, metric = move
    if metric is None:
        return weight.data_ptr(), 0, step, 0.0, 0.0
    if isinstance(metric, Root):
        return weight.data_ptr(), metric.second.data_ptr(), step, 1 / metric.correction, metric.eps
    return weight.data_ptr(), metric.values.data_ptr(), step, 0.0, 0.0


def _tensor(metric: Metric) -> Tensor:
    return metric.second if isinstance(metric, Root) else metric.values
