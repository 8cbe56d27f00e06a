"""Products of two activations, and scaled-dot-product attention as two of them.

    scores = q @ k.T     sums over the units of a head: q_d and k_d are unified, and a pair of which one side is zero
                         contributes nothing
    mixed = scores @ v   sums over positions: the units of the result are those of v

The scores have one unit per head. A head is live while one of its value units is, and then reads its query and key
units.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from gossamer.layers.attention import is_compactable
from gossamer.shrinking.analyse.constraints import EqualCounts, Heads
from gossamer.shrinking.analyse.domain import (
    NO_UNIT,
    AbstractValue,
    as_matrix,
    compress,
    no_units,
    unexpand,
    unknown_value,
    varying_dims,
)
from gossamer.shrinking.analyse.facts import Analysis
from gossamer.shrinking.analyse.rules.pointwise import unify_broadcast
from gossamer.shrinking.analyse.rules.products import contraction, matrix_product
from gossamer.shrinking.analyse.rules.views import parameter_view
from gossamer.shrinking.trace import arguments, caller_path, shape_of

__all__ = ["matmul", "matmul_with_mask", "mixes_units", "product_of_values", "scaled_dot_product_attention"]

aten = torch.ops.aten

_SAME_VALUES: set[Any] = {
    aten.dropout.default,
    aten.to.dtype,
    aten.type_as.default,
    aten.contiguous.default,
    aten.clone.default,
}

_EQUAL_HEADS = "all heads must keep the same width"


def matmul(analysis: Analysis, node: fx.Node) -> Any:
    """A layer if the right side is a parameter; else a product of two activations."""
    as_layer = matrix_product(analysis, node)
    if as_layer is None:
        as_layer = _stacked_product(analysis, node)
    if as_layer is not None:
        return as_layer
    if node.target is aten.addmm.default:
        return mixes_units(analysis, node)
    sides = [analysis.value(n) for n in node.all_input_nodes]
    weights = _sum_to_one(analysis, node.all_input_nodes[0])
    result = product_of_values(analysis, caller_path(node), *sides, weights=weights) if len(sides) == 2 else None
    return mixes_units(analysis, node) if result is None else result


def _stacked_product(analysis: Analysis, node: fx.Node) -> Any:
    """`x @ weight` with one matrix per expert in the weight, all as large as those of x; None if it is not that."""
    if len(node.all_input_nodes) != 2 or parameter_view(analysis, node.all_input_nodes[1]) is None:
        return None
    left, right = node.all_input_nodes
    shapes = shape_of(left), shape_of(right)
    stack = len(shapes[1]) - 2
    letters = "abcdefgh"[: len(shapes[0]) - 2]
    if not 0 < stack <= len(letters) or shapes[0][:-2][-stack:] != shapes[1][:stack]:
        return None
    words = f"{letters}xy", f"{letters[-stack:]}yz", f"{letters}xz"
    return contraction(analysis, node, left, right, words)


def matmul_with_mask(analysis: Analysis, node: fx.Node) -> Any:
    """`mask + q @ k.T`, as `nn.MultiheadAttention` computes its scores."""
    named = arguments(node)
    scores = product_of_values(
        analysis, caller_path(node), analysis.value(named["batch1"]), analysis.value(named["batch2"])
    )
    if scores is None:
        return mixes_units(analysis, node)
    mask = analysis.value(named["self"])
    return unknown_value(unify_broadcast(analysis, node, [scores, mask], tuple(scores.shape)), scores.constant.dtype)


def _sum_to_one(analysis: Analysis, node: fx.Node) -> bool:
    """Whether a value is a softmax over its last dimension, so that what it averages stays a constant if it is one."""
    while node.target in _SAME_VALUES and not analysis.drops(node):
        node = node.all_input_nodes[0]
    if node.target is not aten.softmax.int:
        return False
    return int(arguments(node)["dim"]) in (-1, len(node.meta["val"].shape) - 1)


def scaled_dot_product_attention(analysis: Analysis, node: fx.Node) -> Any:
    """Two products, with a mask added to the scores between them."""
    named = arguments(node)
    query, key, value = (analysis.value(named[part]) for part in ("query", "key", "value"))
    heads = query.shape[-3] if query.labels.dim() > 3 else 1
    key_heads = key.shape[-3] if key.labels.dim() > 3 else 1
    is_grouped = named["enable_gqa"] and heads != key_heads
    if is_grouped:
        key, value = (_repeat_heads(side, heads // key_heads) for side in (key, value))
    path = caller_path(node)
    scores = product_of_values(analysis, path, query, _transpose(key))
    if scores is not None and named["attn_mask"] is not None:
        mask = analysis.value(named["attn_mask"])
        scores = unknown_value(unify_broadcast(analysis, node, [scores, mask], tuple(scores.shape)))
    weights = not analysis.drops(node) and _attends(analysis, named["attn_mask"])
    result = None if scores is None else product_of_values(analysis, path, scores, value, weights=weights)
    if result is None or scores is None:
        return mixes_units(analysis, node)
    if is_grouped:
        by_key_head = scores.labels[(0,) * (scores.labels.dim() - 3)][:, 0, 0].view(key_heads, -1)
        reason = "every key head must keep the same number of query heads"
        analysis.equal_counts.append(EqualCounts((by_key_head,), reason))
    if named["scale"] is None and not is_compactable(analysis.caller(node)):
        # The default scale is the width of a head to the power -1/2, so the width must not change.
        analysis.depends_on_form = True
        if not analysis.rewrites_graph:
            analysis.labels.unify(query.labels, query.labels.narrow(-1, 0, 1))
    return result


def _attends(analysis: Analysis, mask: fx.Node | None) -> bool:
    """Whether every query is known to attend to some position: one that attends to none gives zeros, not an average."""
    if mask is None:
        return True
    value = analysis.value(mask)
    if not bool(value.known.all()):
        return False
    allowed = value.constant if value.constant.dtype == torch.bool else value.constant > -torch.inf
    return bool(allowed.any(-1).all())


def mixes_units(analysis: Analysis, node: fx.Node) -> Any:
    """The result of a product that is none of these."""
    return analysis.opaque(node, f"{node.target} mixes its units")


def _repeat_heads(value: AbstractValue, times: int) -> AbstractValue:
    fields = (value.labels, value.constant, value.known)
    return AbstractValue(*(compress(f.repeat_interleave(times, dim=-3)) for f in fields))


def _transpose(value: AbstractValue) -> AbstractValue:
    return AbstractValue(*(f.transpose(-1, -2) for f in (value.labels, value.constant, value.known)))


def product_of_values(
    analysis: Analysis, path: str, left: AbstractValue, right: AbstractValue, *, weights: bool = False
) -> AbstractValue | None:
    """`left @ right` in the module at `path`; None when the units run along dimensions for which there is no rule.

    `weights` says that the rows of the left side sum to one.
    """
    if min(left.labels.dim(), right.labels.dim()) < 2:
        with_units = left.has_units or right.has_units
        return None if with_units else unknown_value(no_units(_product_shape(left, right)))
    left, right = (_in_batch(side, _product_shape(left, right)[:-2]) for side in (left, right))
    rank = left.labels.dim()
    moves = (varying_dims(left.labels), varying_dims(right.labels))
    rows = sorted({d for dims in moves for d in dims if d < rank - 2})
    inner = (rank - 1 in moves[0] and left.has_units, rank - 2 in moves[1] and right.has_units)
    outer = (rank - 2 in moves[0], rank - 1 in moves[1])
    if all(inner) and not any(outer):
        return _sum_over_units(analysis, path, left, right, rows)
    if any(inner) or all(outer):
        return None
    result = _sum_over_positions(analysis, path, (left, right), rows, outer)
    return _average(result, right) if weights and result is not None and not outer[0] else result


def _average(result: AbstractValue, values: AbstractValue) -> AbstractValue:
    """An average of values: a unit that is the same constant at all positions stays that constant."""
    constant, known = unexpand(values.constant, values.known)
    same = known.all(-2, keepdim=True) & (constant == constant.narrow(-2, 0, 1)).all(-2, keepdim=True)
    constant = constant.narrow(-2, 0, 1).expand(result.shape)
    return AbstractValue(result.labels, compress(constant), compress(same.expand(result.shape)))


def _in_batch(value: AbstractValue, batch: tuple[int, ...]) -> AbstractValue:
    """A stack of matrices, broadcast."""
    shape = (*batch, *value.shape[-2:])
    return AbstractValue(value.labels.expand(shape), value.constant.expand(shape), value.known.expand(shape))


def _product_shape(left: AbstractValue, right: AbstractValue) -> tuple[int, ...]:
    batch = torch.broadcast_shapes(left.shape[:-2], right.shape[:-2])  # type: ignore[no-untyped-call]
    return (*batch, left.shape[-2], right.shape[-1])


def _sum_over_units(
    analysis: Analysis, path: str, left: AbstractValue, right: AbstractValue, rows: list[int]
) -> AbstractValue:
    """`q @ k.T`: the units of both sides are unified; the result has one unit per head."""
    shape, rank = _product_shape(left, right), left.labels.dim()
    queries = as_matrix(left.labels, rows, [rank - 1])
    keys = as_matrix(right.labels, rows, [rank - 2])
    analysis.labels.unify(queries, keys)
    is_zero = _always_zero(left, rank - 1, rows) | _always_zero(right, rank - 2, rows)
    heads = torch.full((1, 1), NO_UNIT)
    labels = no_units(shape)
    if rows:
        labels = _head_labels(analysis, queries, rows, shape)
        heads = as_matrix(labels, rows, [rank - 1])[:, :1]
        analysis.equal_counts.append(EqualCounts((queries, keys, heads), _EQUAL_HEADS))
        analysis.heads.append(Heads(queries, heads[:, 0], path, are_keys=True))
    analysis.depend(heads, queries, foldable=is_zero)
    return unknown_value(labels, left.constant.dtype)


def _always_zero(value: AbstractValue, dim: int, rows: list[int]) -> Tensor:
    """Which units along `dim` are zero at all positions, as rows by units."""
    zero = value.is_zero.expand(value.shape)
    for other in range(zero.dim()):
        if other not in (*rows, dim):
            zero = zero.all(other, keepdim=True)
    return as_matrix(zero, rows, [dim])


def _head_labels(analysis: Analysis, units: Tensor, rows: list[int], shape: tuple[int, ...]) -> Tensor:
    """One label per distinct row of labels (rows repeat when the batch is folded into the heads)."""
    _, which = torch.unique(units, dim=0, return_inverse=True)
    fresh = analysis.labels.fresh(int(which.max()) + 1)[which]
    sizes = [shape[d] if d in rows else 1 for d in range(len(shape))]
    return compress(fresh.view(sizes).expand(shape))


def _sum_over_positions(
    analysis: Analysis,
    path: str,
    sides: tuple[AbstractValue, AbstractValue],
    rows: list[int],
    outer: tuple[bool, bool],
) -> AbstractValue | None:
    """`scores @ v`: the units of the result are those of the side that has some, and each reads its head."""
    shape, rank = _product_shape(*sides), sides[0].labels.dim()
    with_units, with_heads = sides if outer[0] else (sides[1], sides[0])
    dim = rank - 2 if outer[0] else rank - 1
    units = as_matrix(with_units.labels, rows, [dim])
    heads = as_matrix(with_heads.labels, rows, [dim])[:, :1]
    if rows and (bool((units == NO_UNIT).any()) != bool((heads == NO_UNIT).any())):
        return None
    if any(outer) and rows:
        analysis.equal_counts.append(EqualCounts((units, heads), _EQUAL_HEADS))
        analysis.heads.append(Heads(units, heads[:, 0], path, are_keys=False))
        analysis.depend(units, heads)
    elif rows:
        analysis.labels.unify(units[:, :1], heads)
    else:  # one head: what is added to its scores may be a unit too
        analysis.depend(units, heads)
    summed = -1 if outer[0] else -2
    labels = compress(with_units.labels.narrow(summed, 0, 1).expand(shape))
    known = unexpand(with_units.is_zero.all(summed, keepdim=True))[0].expand(shape)
    constant = torch.zeros((), dtype=with_units.constant.dtype).expand(shape)
    return AbstractValue(labels, constant, compress(known))
