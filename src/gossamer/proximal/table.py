"""The records that the fused kernel reads, as declared in kernel/table.hpp."""

from __future__ import annotations

from dataclasses import astuple
from functools import cache

import numpy as np
import torch
from numpy.polynomial import chebyshev
from torch import Tensor, nn

from gossamer.layers import Groups
from gossamer.penalties import (
    L0,
    L1,
    L2,
    MCP,
    SCAD,
    CappedL1,
    Exclusive,
    Group,
    L1MinusL2,
    Log,
    Lp,
    Penalty,
    TransformedL1,
)
from gossamer.proximal.blocks import Blocks, blocks_of
from gossamer.proximal.metric import Given, Metric, Root
from gossamer.regularizers import Rule, Term

__all__ = [
    "STEP",
    "STEP_RECORD",
    "TERM",
    "WEIGHT",
    "is_scalar",
    "metric_kind",
    "supports",
    "supports_layout",
    "write_record",
    "write_term",
]

# The numbers of kernel/table.hpp. Exact types: a subclass may compute something else.
_SCALAR_KINDS: dict[type[Penalty], int] = {
    L0: 1, L1: 2, L2: 3, TransformedL1: 4, SCAD: 5, MCP: 6, Log: 7, CappedL1: 8, Lp: 9,
}  # fmt: skip
_L1_MINUS_L2, _EXCLUSIVE, _EXCLUSIVE_OF_INPUT = 10, 11, 12
_METRIC_KINDS: dict[type[Metric] | type[None], int] = {type(None): 0, Root: 1, Given: 2}
_MOST_TERMS = 2
_SERIES = 24
_LARGEST_P = 0.98  # of `Lp`; for larger p the series converges too slowly

TERM = np.dtype(
    [
        ("kind", np.int32),
        ("grouped", np.int32),
        ("first", np.float64),
        ("second", np.float64),
        ("coefficient", np.float64),
        ("series", np.float64, _SERIES),
    ],
    align=True,
)
WEIGHT = np.dtype(
    [
        ("blocks", np.int64),
        ("rows", np.int64),
        ("groups", np.int64),
        ("taps", np.int64),
        ("tile", np.int64),
        ("is_double", np.int32),
        ("metric_kind", np.int32),
        ("terms", TERM, _MOST_TERMS),
    ],
    align=True,
)
STEP = "PPddd"  # as a `struct` format: addresses of the weight and its metric, size, correction, eps
STEP_RECORD = np.dtype(
    [("data", np.uintp), ("metric", np.uintp), ("size", float), ("correction", float), ("eps", float)], align=True
)

_LARGEST_TILE = 1024  # groups per tile, as in the kernel
_TILE_WEIGHTS = 4096  # per row of a tile, at most a chunk of the kernel: 16 KB, half of a first-level cache
_CHUNK_WEIGHTS = 16_384  # per tile without groups


def supports(rule: Rule, weight: Tensor, metric: Metric | None = None) -> bool:
    """Whether the kernel can take the proximal step of a rule, given the memory layout of the weight and its metric."""
    if not (_is_dense(weight) and weight.numel() and _has_form(rule, weight, metric)):
        return False
    return _same_layout(metric, weight) and blocks_of(weight, rule.weight.layout, _groups(rule)) is not None


def metric_kind(metric: Metric | None) -> int:
    """The number of a kind of metric in the kernel."""
    return _METRIC_KINDS[type(metric)]


def write_record(row: np.void, rule: Rule, weight: Tensor, metric: Metric | None) -> None:
    """Write the record of a weight that is supported."""
    blocks = blocks_of(weight, rule.weight.layout, _groups(rule))
    assert blocks is not None  # checked by `supports`
    row["blocks"], row["rows"], row["groups"], row["taps"] = astuple(blocks)
    weights = _TILE_WEIGHTS if metric is None else _TILE_WEIGHTS // 2  # the metric is in the cache as well
    row["tile"] = _tile(blocks, weights) if _groups(rule) is not None else _CHUNK_WEIGHTS
    row["is_double"] = weight.dtype == torch.float64
    row["metric_kind"] = metric_kind(metric)
    for record, term in zip(row["terms"], rule.terms, strict=False):
        write_term(record, term, rule.scale)


def supports_layout(weight: Tensor, metric: Metric | None) -> bool:
    """Whether the kernel can read a weight and its metric: plain tensors with the same dense layout."""
    return _is_dense(weight) and _same_layout(metric, weight)


def is_scalar(penalty: Penalty) -> bool:
    """Whether the kernel has this penalty as a scalar one."""
    return type(penalty) in _SCALAR_KINDS and _is_computable(penalty)


def _is_dense(tensor: Tensor) -> bool:
    plain = type(tensor) in (Tensor, nn.Parameter) and tensor.device.type == "cpu" and tensor.layout == torch.strided
    return plain and tensor.dtype in (torch.float32, torch.float64)


def _same_layout(metric: Metric | None, weight: Tensor) -> bool:
    if metric is None:
        return True
    tensor = metric.second if isinstance(metric, Root) else metric.values
    same = tensor.dtype == weight.dtype and tensor.shape == weight.shape and tensor.stride() == weight.stride()
    return same and _is_dense(tensor)


def _has_form(rule: Rule, weight: Tensor, metric: Metric | None) -> bool:
    """Whether the rule has up to two terms of known penalties, with one grouping at most."""
    if len(rule.terms) > _MOST_TERMS or len({term.groups for term in rule.terms if _on_groups(term)}) > 1:
        return False
    return all(_is_known(term, weight, metric) for term in rule.terms)


def _is_known(term: Term, weight: Tensor, metric: Metric | None) -> bool:
    kind = type(term.penalty)
    if kind in _SCALAR_KINDS:
        return _is_computable(term.penalty)
    if term.groups is None:
        return False  # the vectors of the last dimension
    if isinstance(term.penalty, Group):
        inner = term.penalty.inner
        return kind is Group and type(inner) in _SCALAR_KINDS and _is_computable(inner)
    if kind is L1MinusL2:
        return metric is None and weight.is_contiguous()  # it keeps the first of equal weights
    return kind is Exclusive


def _is_computable(penalty: Penalty) -> bool:
    return not (isinstance(penalty, Lp) and penalty.p > _LARGEST_P)


def _on_groups(term: Term) -> bool:
    return type(term.penalty) not in _SCALAR_KINDS


def _groups(rule: Rule) -> Groups | None:
    return next((term.groups for term in rule.terms if _on_groups(term)), None)


def write_term(record: np.void, term: Term, scale: float) -> None:
    """Write a term whose penalty is known."""
    penalty = term.penalty
    record["grouped"] = _on_groups(term)
    record["coefficient"] = scale * term.coefficient
    if isinstance(penalty, L1MinusL2):
        record["kind"] = _L1_MINUS_L2
    elif isinstance(penalty, Exclusive):
        record["kind"] = _EXCLUSIVE if penalty.exact else _EXCLUSIVE_OF_INPUT
    else:
        scalar = penalty.inner if isinstance(penalty, Group) else penalty
        record["kind"] = _SCALAR_KINDS[type(scalar)]
        parameters = [*astuple(scalar), 0.0, 0.0]  # type: ignore[call-overload]  # all are dataclasses
        record["first"], record["second"] = parameters[:2]
        if isinstance(scalar, Lp):
            record["series"] = _lp_series(scalar.p)


@cache
def _lp_series(p: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Chebyshev coefficients of (1 - t) / e as a function of y = 1 - sqrt(1 - e / largest); see kernel/shrinkage.hpp.

    t is the outer root of 1 - t = e t^(p-1). Newton's method for 1 - t starts at e and increases to the root.
    """
    ratio = p * 2 ** (1 - p)  # last / largest
    largest = ((1 - p) / (2 - p)) ** (1 - p) / (2 - p)
    nodes = chebyshev.chebpts1(_SERIES)
    y = (nodes + 1) / 2 * (1 - np.sqrt(1 - ratio))
    e = largest * y * (2 - y)
    gone = e.copy()
    for _ in range(60):
        pull = e * (1 - gone) ** (p - 1)
        gone = gone + (pull - gone) / (1 - pull * (1 - p) / (1 - gone))
    return chebyshev.chebfit(nodes, gone / e, _SERIES - 1)


def _tile(blocks: Blocks, weights: int) -> int:
    """Groups per tile, so that a row of it has about `weights` weights."""
    largest = min(_LARGEST_TILE, max(1, weights // blocks.taps))
    # Groups spread over rows: long contiguous reads are fast, but each thread needs a tile.
    return largest if blocks.rows == 1 else min(largest, -(-blocks.groups // torch.get_num_threads()))
