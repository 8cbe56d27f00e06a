"""The proximal steps of a whole model in one call of the native kernel: one pass over each weight, in place.

The kernel takes a weight if it is a plain float32 or float64 tensor on the CPU without gaps in memory, and its rule is
a scalar penalty, a scalar penalty on the norms of groups, or the one after the other. All recipes but the combined
group and exclusive one are of that form. All other weights take the plain implementation, `Rule.prox`, whose result
is the same up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from gossamer.layers import Groups
from gossamer.penalties import L0, L1, L2, MCP, SCAD, CappedL1, Group, Log, Penalty, TransformedL1
from gossamer.proximal.blocks import Blocks, blocks_of
from gossamer.proximal.native import Kernel
from gossamer.regularizers import Rule, Term

__all__ = ["FUSED_FROM", "FusedStep", "Move", "supports"]

# Weights in all from which `compile="auto"` uses the kernel. Below, compiling it for the first time takes
# longer than all the plain steps of a short training (docs/performance.md).
FUSED_FROM = 5_000

# As in kernel.cpp. Exact types: a subclass may compute something else.
_KINDS: dict[type[Penalty], int] = {
    L0: 1, L1: 2, L2: 3, TransformedL1: 4, SCAD: 5, MCP: 6, Log: 7, CappedL1: 8,
}  # fmt: skip
_TERM = [("kind", np.int32), ("first", np.float64), ("second", np.float64), ("step", np.float64)]
_TABLE = np.dtype(
    [
        ("data", np.uintp),
        ("blocks", np.int64),
        ("rows", np.int64),
        ("groups", np.int64),
        ("taps", np.int64),
        ("tile", np.int64),
        ("is_double", np.int32),
        ("single", np.dtype(_TERM, align=True)),
        ("group", np.dtype(_TERM, align=True)),
    ],
    align=True,
)
_LARGEST_TILE = 1024  # the kernel's bound on groups in a tile
_TILE_WEIGHTS = 4096  # of a tile in one row: 16 KB, half a first-level cache
_CHUNK_WEIGHTS = 16_384  # of a tile without groups
_WEIGHTS_PER_THREAD = 16_384  # starting a thread costs as much as some ten thousand weights


class Move(NamedTuple):
    """One proximal step: the rule, the weight, and the step size with the strength included."""

    rule: Rule
    weight: Tensor
    step: Tensor


class FusedStep:
    """The kernel and its table of weights, one row per weight, rebuilt when a weight has moved in memory.

    A step only writes the step sizes; nothing is allocated that grows with the weights.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.tables = 0  # how often the table has been made
        self._kernel = kernel
        self._signature: list[int] = []
        self._rules: list[Rule] = []
        self._fits: list[bool] = []
        self._table = np.zeros(0, _TABLE)
        self._factors = np.zeros((0, 3))
        self._weights = 0

    def take(self, moves: Sequence[Move]) -> tuple[list[Move], bool]:
        """Take the moves that the kernel can take; return the others, and False where a weight may not be finite."""
        signature = [_signature(move) for move in moves]
        if signature != self._signature:
            self._make_table(moves)
            self._signature = signature
        fused = [move for move, fits in zip(moves, self._fits, strict=True) if fits]
        if not fused:
            return list(moves), True
        scale, single, group = self._factors.T
        scaled = scale * np.array([float(move.step) for move in fused])
        self._table["single"]["step"] = single * scaled
        self._table["group"]["step"] = group * scaled
        threads = min(torch.get_num_threads(), 1 + self._weights // _WEIGHTS_PER_THREAD)
        finite = self._kernel(self._table.ctypes.data, len(self._table), threads)
        # To autograd this must look like any operation in place.
        torch.autograd.graph.increment_version([move.weight for move in fused])
        return [move for move, fits in zip(moves, self._fits, strict=True) if not fits], bool(finite)

    def _make_table(self, moves: Sequence[Move]) -> None:
        self.tables += 1
        self._rules = [move.rule for move in moves]  # keeps them, and so keeps their identities in the signature unique
        self._fits = [supports(move.rule, move.weight) for move in moves]
        fused = [move for move, fits in zip(moves, self._fits, strict=True) if fits]
        self._weights = sum(move.weight.numel() for move in fused)
        self._table = np.zeros(len(fused), _TABLE)
        self._factors = np.zeros((len(fused), 3))
        for row, factors, move in zip(self._table, self._factors, fused, strict=True):
            _write_row(row, move.rule, move.weight)
            coefficients = [0.0 if term is None else term.coefficient for term in _terms(move.rule)]
            factors[:] = move.rule.scale, *coefficients


def _signature(move: Move) -> int:
    """A number for where the weight lies and what its rule is: while it stays the same, so does the row of the table.

    One number and not a tuple: a thousand containers kept from step to step would wake the garbage collector.
    """
    weight = move.weight
    return hash((id(move.rule), weight.data_ptr(), weight.shape, weight.stride(), weight.dtype))


def supports(rule: Rule, weight: Tensor) -> bool:
    """Whether the kernel can take the proximal step of this rule on this weight as it lies in memory."""
    plain = type(weight) in (Tensor, nn.Parameter) and weight.device.type == "cpu" and weight.layout == torch.strided
    if not (plain and weight.dtype in (torch.float32, torch.float64) and weight.numel() and _has_form(rule)):
        return False
    return _blocks(rule, weight) is not None


def _has_form(rule: Rule) -> bool:
    """Whether the terms are a scalar penalty, a scalar penalty on the norms of groups, or the one after the other."""
    grouped = [type(term.penalty) is Group for term in rule.terms]
    if grouped not in ([False], [True], [False, True]):
        return False
    known = all(type(_scalar(term.penalty)) in _KINDS for term in rule.terms)
    return known and not (grouped[-1] and rule.terms[-1].groups is None)


def _terms(rule: Rule) -> tuple[Term | None, Term | None]:
    single, group = None, None
    for term in rule.terms:
        if isinstance(term.penalty, Group):
            group = term
        else:
            single = term
    return single, group


def _blocks(rule: Rule, weight: Tensor) -> Blocks | None:
    _, group = _terms(rule)
    groups: Groups | None = None if group is None else group.groups
    return blocks_of(weight, rule.weight.layout, groups)


def _tile(blocks: Blocks, *, grouped: bool) -> int:
    if not grouped:
        return _CHUNK_WEIGHTS
    largest = min(_LARGEST_TILE, max(1, _TILE_WEIGHTS // blocks.taps))
    # Groups that are spread over rows: a long stretch of each row keeps the memory busy, but each thread needs a tile.
    return largest if blocks.rows == 1 else min(largest, -(-blocks.groups // torch.get_num_threads()))


def _write_row(row: np.void, rule: Rule, weight: Tensor) -> None:
    blocks = _blocks(rule, weight)
    assert blocks is not None  # `supports` has asked
    terms = dict(zip(("single", "group"), _terms(rule), strict=True))
    row["data"] = weight.data_ptr()
    row["blocks"], row["rows"], row["groups"], row["taps"] = astuple(blocks)
    row["tile"] = _tile(blocks, grouped=terms["group"] is not None)
    row["is_double"] = weight.dtype == torch.float64
    for name, term in terms.items():
        if term is not None:
            scalar = _scalar(term.penalty)
            parameters = [*astuple(scalar), 0.0, 0.0]  # type: ignore[call-overload]  # those in _KINDS are dataclasses
            row[name]["kind"] = _KINDS[type(scalar)]
            row[name]["first"], row[name]["second"] = parameters[:2]


def _scalar(penalty: Penalty) -> Penalty:
    return penalty.inner if isinstance(penalty, Group) else penalty
