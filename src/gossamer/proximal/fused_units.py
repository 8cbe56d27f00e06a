"""The proximal step of a regularizer with units in one call of the native kernel: two passes over the weights.

The kernel takes contiguous float32 or float64 tensors on the CPU, one element-wise scalar penalty for each weight, and
one penalty on the norms of units. Everything else takes the plain implementation (`gossamer.proximal.units`), with the
same result up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gossamer.penalties import Group
from gossamer.proximal.fused import Move, step_values
from gossamer.proximal.native import UnitKernel
from gossamer.proximal.table import STEP_RECORD, TERM, WEIGHT, is_scalar, metric_kind, supports_layout, write_term
from gossamer.regularizers import KeptNorm, Slices, Term, Units
from gossamer.shrinking.units import NONE

__all__ = ["FusedUnits"]

_POINTER = np.uintp
_TENSOR = np.dtype(
    [
        ("weight", WEIGHT),
        *[(size, np.int64) for size in ("rows", "columns", "taps")],
        *[(array, _POINTER) for array in ("units", "followed", "blocks", "norms", "sums", "factors")],
        ("holds_columns", np.int32),
        ("follows_columns", np.int32),
    ],
    align=True,
)
_PART = np.dtype([("tensor", np.int64), ("first", np.int64), ("last", np.int64), ("sums", _POINTER)], align=True)
_GROUPS = np.dtype(
    [
        ("term", TERM),
        ("count", np.int64),
        *[(array, _POINTER) for array in ("coefficients", "totals", "results", "dead", "starts", "members")],
        ("in_metric", np.int32),
    ],
    align=True,
)
_SUMS = 5  # per unit in a metric, as in the kernel
_PART_WEIGHTS = 131_072  # the sums of a part's columns are few beside its weights
_WEIGHTS_PER_THREAD = 16_384

_Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class _Shape:
    """A tensor as [rows][columns][taps], such that all axes of its units are rows or columns."""

    rows: int
    columns: int
    taps: int
    columns_at: int  # the dimension that are the columns

    @classmethod
    def of(cls, shape: torch.Size, dims: set[int]) -> _Shape | None:
        if len(shape) == 1:
            return cls(1, shape[0], 1, 0)
        if dims <= {0, 1}:
            return cls(shape[0], shape[1], math.prod(shape[2:]), 1)
        if len(dims) > 1:
            return None
        (dim,) = dims
        return cls(math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :]), dim)


class FusedUnits:
    """The kernel and its tables, which are built again when the tensors or the units change."""

    def __init__(self, kernel: UnitKernel) -> None:
        self._kernel = kernel
        self._key: tuple[Any, ...] | None = None
        self._tables: _Tables | None = None

    def take(self, units: Units, moves: Sequence[Move]) -> bool | None:
        """Take the whole proximal step.

        Returns:
            None if it is not supported and nothing was done; else whether all weights may be finite.
        """
        # Steps that differ between tensors are a metric too.
        in_metric = len({move.step for move in moves}) > 1 or any(move.metric is not None for move in moves)
        key = (units, units.version, in_metric, *(self._described(move) for move in moves))
        if key != self._key:
            self._key = key
            self._tables = _Tables(units, moves, in_metric) if _supports(units, moves) else None
        if self._tables is None:
            return None
        tables = self._tables
        tables.steps[:] = [step_values(move) for move in moves]
        threads = min(torch.get_num_threads(), 1 + tables.weights // _WEIGHTS_PER_THREAD)
        finite = self._kernel(*tables.addresses, threads)
        torch.autograd.graph.increment_version([move.weight for move in moves])  # an in-place operation
        return bool(finite)

    @staticmethod
    def _described(move: Move) -> tuple[Any, ...]:
        weight = move.weight
        return id(move.rule), id(weight), weight.shape, weight.stride(), weight.dtype, metric_kind(move.metric)


def _supports(units: Units, moves: Sequence[Move]) -> bool:
    """Whether the kernel knows the penalties and the memory layouts, and all members of units move."""
    present = {id(move.weight) for move in moves}
    if not moves or any(id(slices.weight.parameter) not in present for slices in units.slices):
        return False
    if len({move.weight.dtype for move in moves}) > 1 or len(units.terms) > 1:
        return False
    if not all(type(term.penalty) is Group and is_scalar(term.penalty.inner) for term in units.terms):
        return False
    return all(_supports_move(units, move) for move in moves)


def _supports_move(units: Units, move: Move) -> bool:
    terms, weight = move.rule.terms, move.weight
    if len(terms) > 1 or not all(is_scalar(term.penalty) for term in terms):
        return False
    if not weight.is_contiguous() or not weight.numel() or not supports_layout(weight, move.metric):
        return False
    axes = _axes(units, weight)
    kept = _kept_norm(units, weight)
    shape = _Shape.of(weight.shape, {slices.dim for slices in axes} | ({0} if kept is not None else set()))
    return shape is not None and sum(slices.holds for slices in axes) <= 1 and len(axes) <= 2


def _axes(units: Units, weight: Tensor) -> list[Slices]:
    return [slices for slices in units.slices if slices.weight.parameter is weight]


def _kept_norm(units: Units, weight: Tensor) -> KeptNorm | None:
    return next((kept for kept in units.kept_norms if kept.weight.parameter is weight), None)


class _Tables:
    """The records that the kernel reads, and the memory that it works in."""

    def __init__(self, units: Units, moves: Sequence[Move], in_metric: bool) -> None:
        self.weights = sum(move.weight.numel() for move in moves)
        self._memory: list[_Array] = []  # kept alive
        self._sums = _SUMS if in_metric else 1
        self._tensors = np.zeros(len(moves), _TENSOR)
        self.steps = np.zeros(len(moves), STEP_RECORD)
        parts: list[tuple[int, int, int, int]] = []
        members: list[tuple[int, int, int]] = []  # unit, tensor, index
        for number, move in enumerate(moves):
            parts += self._write_tensor(number, move, units, members)
        self._parts = np.array(parts, _PART)
        self._groups = np.zeros(1, _GROUPS)
        self._write_groups(units, members, in_metric)
        self.addresses = (
            self._tensors.ctypes.data,
            self.steps.ctypes.data,
            len(moves),
            self._parts.ctypes.data,
            len(parts),
            self._groups.ctypes.data,
        )

    def _write_tensor(
        self, number: int, move: Move, units: Units, members: list[tuple[int, int, int]]
    ) -> list[tuple[int, int, int, int]]:
        record, weight = self._tensors[number], move.weight
        axes, kept = _axes(units, weight), _kept_norm(units, weight)
        shape = _Shape.of(weight.shape, {slices.dim for slices in axes} | ({0} if kept is not None else set()))
        assert shape is not None  # checked by `_supports_move`
        record["rows"], record["columns"], record["taps"] = shape.rows, shape.columns, shape.taps
        record["weight"]["is_double"] = weight.dtype == torch.float64
        record["weight"]["metric_kind"] = metric_kind(move.metric)
        for term in move.rule.terms:
            write_term(record["weight"]["terms"][0], term, move.rule.scale)
        length = shape.columns * shape.taps
        for slices in axes:
            along_columns = slices.dim == shape.columns_at
            record["units" if slices.holds else "followed"] = self._keep(slices.units, np.int32)
            record["holds_columns" if slices.holds else "follows_columns"] = along_columns
            if slices.holds:
                place, size = ("factors", length) if along_columns else ("sums", self._sums * shape.rows)
                record[place] = self._space(size)
                found = torch.nonzero(slices.units != NONE).flatten().tolist()
                members += [(int(slices.units[index]), number, index) for index in found]
        blocks = None
        if kept is not None:
            record["blocks"], record["norms"] = self._keep(kept.blocks, np.int64), self._space(shape.rows)
            blocks = kept.blocks
        per_part = self._sums * length if record["units"] and record["holds_columns"] else 0
        return [(number, *rows, self._space(per_part)) for rows in _ranges(shape.rows, length, blocks)]

    def _write_groups(self, units: Units, members: list[tuple[int, int, int]], in_metric: bool) -> None:
        record = self._groups[0]
        count = 1 + max((unit for unit, _, _ in members), default=NONE)
        coefficients = torch.zeros(count, dtype=torch.float64)
        for term in units.terms:
            write_term(record["term"], Term(term.penalty, 1.0, "units"), 1.0)
            coefficients = term.coefficients[:count]
        record["count"], record["in_metric"] = count, in_metric
        record["coefficients"] = self._keep(coefficients, np.float64)
        record["totals"], record["results"] = self._space(self._sums * count), self._space(count)
        # What a tensor follows may be a unit beyond those that are held.
        followed = 1 + max((int(slices.units.max()) for slices in units.slices), default=NONE)
        record["dead"] = self._keep(torch.zeros(max(count, followed)), np.int32)
        members.sort()
        starts = np.searchsorted([unit for unit, _, _ in members], np.arange(count + 1))
        record["starts"] = self._keep(torch.from_numpy(np.asarray(starts)), np.int64)
        record["members"] = self._keep(torch.tensor([place for _, *place in members]), np.int32)

    def _keep(self, values: Tensor, dtype: Any) -> int:
        self._memory.append(np.ascontiguousarray(values.numpy(), dtype))
        return int(self._memory[-1].ctypes.data)

    def _space(self, size: int) -> int:
        self._memory.append(np.zeros(size, np.float64))
        return int(self._memory[-1].ctypes.data) if size else 0


def _ranges(rows: int, length: int, blocks: Tensor | None) -> list[tuple[int, int]]:
    """Ranges of rows of about the size of a part that do not split a block."""
    ends = range(1, rows + 1) if blocks is None else [*(torch.nonzero(blocks.diff()).flatten() + 1).tolist(), rows]
    found, first = [], 0
    for end in ends:
        if (end - first) * length >= _PART_WEIGHTS or end == rows:
            found.append((first, end))
            first = end
    return found
