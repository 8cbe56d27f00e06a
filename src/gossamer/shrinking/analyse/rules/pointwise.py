"""Element-wise operations: `y[p] = f(a[p], b[p], ...)` at every position p, after broadcasting.

Labels that meet at a position are unified: the units are removed together or not at all. The result is constant where
all operands are, and a product is zero wherever one factor is.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload

from gossamer.layers.kinds import PRELU
from gossamer.shrinking.analyse.constraints import EqualCounts
from gossamer.shrinking.analyse.domain import (
    NO_UNIT,
    AbstractValue,
    as_matrix,
    compress,
    constant_value,
    no_units,
    unexpand,
    unknown_value,
    varying_dims,
)
from gossamer.shrinking.analyse.facts import Analysis
from gossamer.shrinking.analyse.rules.views import bind_vector
from gossamer.shrinking.trace import arguments, caller_path, shape_of

__all__ = ["dropout", "glu", "is_pointwise", "overwrite", "pointwise", "prelu", "unify_broadcast"]

aten = torch.ops.aten

# Element-wise operations that PyTorch does not tag as such.
_UNTAGGED: set[OpOverload] = {
    aten.hardswish.default,
    aten.hardtanh.default,
    aten.relu6.default,
    aten.hardsigmoid.default,
    aten.leaky_relu.default,
    aten.elu.default,
    aten.celu.default,
    aten.selu.default,
    aten.mish.default,
    aten.softplus.default,
    aten.silu.default,
    aten.gelu.default,
    aten.log_sigmoid.default,
    aten.hardshrink.default,
    aten.softshrink.default,
    aten.threshold.default,
    aten.to.dtype,
    aten.to.device,
    aten.to.dtype_layout,
    aten._to_copy.default,
    aten.type_as.default,
    aten.masked_fill.Scalar,
    aten.masked_fill.Tensor,
    aten.square.default,
    aten.clip.default,
    aten.subtract.Tensor,
    aten.multiply.Tensor,
    aten.divide.Tensor,
    aten.where.Scalar,
    aten.where.ScalarSelf,
    aten.where.ScalarOther,
}

_CHOICES: dict[OpOverload, tuple[int, int]] = {
    aten.where.self: (1, 2),
    aten.where.ScalarSelf: (1, 2),
    aten.where.ScalarOther: (1, 2),
    aten.masked_fill.Scalar: (0, 2),
    aten.masked_fill.Tensor: (0, 2),
}
"""Operations whose result is, at each position, one of two arguments."""

_PRODUCTS: set[OpOverload] = {aten.mul.Tensor, aten.multiply.Tensor}


def is_pointwise(op: OpOverload) -> bool:
    """Whether an operation is element-wise and deterministic."""
    if torch.Tag.nondeterministic_seeded in op.tags:
        return False
    return torch.Tag.pointwise in op.tags or op in _UNTAGGED


def pointwise(analysis: Analysis, node: fx.Node) -> AbstractValue:
    """Unify the labels that meet, and execute the operation on the constants."""
    sources = [n for n in node.all_input_nodes if isinstance(n.meta.get("val"), Tensor)]
    operands = {n: analysis.value(n) for n in sources}
    if node.target in _PRODUCTS and len(operands) == 2:
        operands = _close(analysis, operands, shape_of(node))
    labels = unify_broadcast(analysis, node, list(operands.values()), shape_of(node))
    constant, known = _constants(analysis, node, operands)
    return AbstractValue(labels, constant, known)


def _close(
    analysis: Analysis, operands: dict[fx.Node, AbstractValue], shape: tuple[int, ...]
) -> dict[fx.Node, AbstractValue]:
    """A parameter that is zero (the scale of a residual branch) closes the units that it is multiplied with."""
    first, second = operands
    for scale, other in ((first, second), (second, first)):
        is_parameter = scale in analysis.traced.states or scale in analysis.deferred
        labels = operands[other].labels
        if not is_parameter or tuple(labels.shape) != shape or not operands[other].has_units:
            continue
        zero, narrow = unexpand(operands[scale].is_zero.expand(shape), labels)
        closed = replace(operands[other], labels=compress(analysis.close(narrow, zero).expand(shape)))
        return {n: closed if n is other else value for n, value in operands.items()}
    return operands


def glu(analysis: Analysis, node: fx.Node) -> AbstractValue:
    """`a * sigmoid(b)` for the halves a and b of the input: their units are removed together."""
    named = arguments(node)
    source = analysis.value(named["self"])
    dim = named["dim"] % source.labels.dim()
    half = source.labels.size(dim) // 2
    a, b = (
        AbstractValue(*(f.narrow(dim, start, half) for f in (source.labels, source.constant, source.known)))
        for start in (0, half)
    )
    analysis.labels.unify(a.labels, b.labels)
    constant = torch.where(a.is_zero, torch.zeros_like(a.constant), a.constant * torch.sigmoid(b.constant))
    return AbstractValue(compress(a.labels), compress(constant), compress((a.known & b.known) | a.is_zero))


def overwrite(analysis: Analysis, node: fx.Node) -> AbstractValue:
    """`x.fill_(value)` and `x.copy_(y)`, out of place: the units that are there, with other values."""
    before, new = analysis.value(node.all_input_nodes[0]), node.args[1]
    value = analysis.value(new) if isinstance(new, fx.Node) else constant_value(torch.tensor(new))
    shape, dtype = shape_of(node), node.meta["val"].dtype
    labels = unify_broadcast(analysis, node, [before, value], shape)
    return AbstractValue(labels, value.constant.to(dtype).expand(shape), value.known.expand(shape))


def dropout(analysis: Analysis, node: fx.Node) -> AbstractValue:
    """The identity in evaluation mode; in training mode the only constant that stays one is zero."""
    source = analysis.value(node.all_input_nodes[0])
    if not analysis.drops(node):
        return source
    constant, known = unexpand(source.constant, source.known)
    return AbstractValue(source.labels, source.constant, (known & (constant == 0)).expand(source.shape))


def prelu(analysis: Analysis, node: fx.Node) -> Any:
    """One slope per channel, or one for all."""
    source = analysis.value(node.all_input_nodes[0])
    slope_node = arguments(node)["weight"]
    slope = analysis.state_tensor(slope_node)
    if slope is None or (slope.numel() > 1 and any(d != 1 for d in varying_dims(source.labels))):
        return analysis.opaque(node, "the slopes of a PReLU are computed, or do not run along its units")
    if slope.numel() > 1:
        labels = unexpand(source.labels, keep=1)[0].flatten()
        bind_vector(analysis, slope_node, labels)
        analysis.count_units(caller_path(node), PRELU, outputs=labels)
    constant, known = unexpand(source.constant, source.known, keep=1 if source.constant.dim() > 1 else None)
    return AbstractValue(source.labels, torch.prelu(constant, slope).expand(source.shape), known.expand(source.shape))


def unify_broadcast(
    analysis: Analysis, node: fx.Node, operands: Sequence[AbstractValue], shape: tuple[int, ...]
) -> Tensor:
    """The labels of an element-wise result of this shape, with the labels of all operands unified.

    An operand that is broadcast over units has one unit for many of the result: it stays as long as one of them does.
    Operands without units pin the units that they meet, unless they are broadcast over them.
    """
    aligned = [_align(operand.labels, len(shape)) for operand in operands]
    expanded = [labels.expand(shape) for labels in aligned]
    moving = {d for labels in expanded for d in varying_dims(labels)}
    with_units = [operand.has_units for operand in operands]
    is_broadcast = [any(labels.size(d) == 1 for d in moving if shape[d] > 1) for labels in aligned]
    at_all_units = [units and not broadcast for units, broadcast in zip(with_units, is_broadcast, strict=True)]
    full = [labels for labels, complete in zip(expanded, at_all_units, strict=True) if complete]
    if not full:
        for labels, units in zip(expanded, with_units, strict=True):
            if units:
                reason = f"{node.target} combines it with units along another dimension"
                analysis.labels.pin(unexpand(labels)[0], reason)
        return no_units(shape)
    result = _unify(analysis, node, full, shape)
    for labels, before, units, broadcast in zip(expanded, aligned, with_units, is_broadcast, strict=True):
        if not units and any(before.size(d) > 1 for d in moving):
            analysis.labels.pin(unexpand(result)[0], f"{node.target} combines it with an operand of fixed size")
        elif units and broadcast:
            _depend_on_broadcast(analysis, result, labels, before, sorted(moving))
    return result


def _align(labels: Tensor, rank: int) -> Tensor:
    return labels.reshape((1,) * (rank - labels.dim()) + tuple(labels.shape))


def _unify(analysis: Analysis, node: fx.Node, full: list[Tensor], shape: tuple[int, ...]) -> Tensor:
    # The result takes its labels from the operand in which they change along the fewest dimensions.
    result, *others = unexpand(*sorted(full, key=lambda labels: len(varying_dims(labels))))
    for labels in others:
        analysis.labels.unify(result, labels)
        one_sided = (result == NO_UNIT) != (labels == NO_UNIT)
        if bool(one_sided.any()):
            reason = f"{node.target} combines it with positions that belong to no unit"
            analysis.labels.pin(torch.maximum(result, labels)[one_sided], reason)
        result = torch.where(result == NO_UNIT, labels, result)
    return compress(result.expand(shape))


def _depend_on_broadcast(analysis: Analysis, result: Tensor, labels: Tensor, before: Tensor, moving: list[int]) -> None:
    """One unit is broadcast over many (a gate, a temperature per head): it is read by each of them."""
    rows = [d for d in moving if before.size(d) > 1]
    columns = [d for d in moving if before.size(d) == 1]
    many = as_matrix(result, rows, columns)
    one = as_matrix(labels, rows, columns)[:, :1]
    analysis.equal_counts.append(EqualCounts((many, one), "it is broadcast over units that stay"))
    analysis.depend(many, one)


def _constants(analysis: Analysis, node: fx.Node, operands: dict[fx.Node, AbstractValue]) -> tuple[Tensor, Tensor]:
    """The operation on the constants, and where all of them are known."""
    shape, dtype = shape_of(node), node.meta["val"].dtype
    nothing = unknown_value(no_units(shape), dtype)
    if not any(operand.has_constants for operand in operands.values()):
        return nothing.constant, nothing.known
    constants = [operand.constant.expand(shape) for operand in operands.values()]
    masks = [operand.known.expand(shape) for operand in operands.values()]
    narrowed = unexpand(*constants, *masks)
    factors, masks = list(narrowed[: len(constants)]), list(narrowed[len(constants) :])
    by_node = dict(zip(operands, factors, strict=True))
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: by_node.get(n, analysis.values.get(n)))
    target: Any = node.target
    try:
        result = target(*args, **kwargs).to(dtype)
    except RuntimeError:  # such as an integer division by an unknown operand, which is stored as zero
        return nothing.constant, nothing.known
    known = functools.reduce(torch.logical_and, masks)
    if node.target in _PRODUCTS:
        result, known = _absorb_zeros(result, known, factors, masks)
    if node.target in _CHOICES:
        one, other = (node.args[place] for place in _CHOICES[node.target])
        facts: dict[Any, tuple[Any, Any]] = dict(zip(operands, zip(factors, masks, strict=True), strict=True))
        result, known = _choose_equals(result, known, facts.get(one, (one, True)), facts.get(other, (other, True)))
    return compress(result.expand(shape)), compress(known.expand(shape))


def _absorb_zeros(result: Tensor, known: Tensor, factors: list[Tensor], masks: list[Tensor]) -> tuple[Tensor, Tensor]:
    """A factor that is known to be zero makes the product zero, whatever the other (finite) factor is."""
    for factor, mask in zip(factors, masks, strict=True):
        zero = mask & (factor == 0)
        known = known | zero
        result = torch.where(zero, torch.zeros_like(result), result)
    return result, known


def _choose_equals(
    result: Tensor, known: Tensor, one: tuple[Any, Any], other: tuple[Any, Any]
) -> tuple[Tensor, Tensor]:
    """Two constants, each with where it is known: where they are equal, it does not matter which one is chosen."""
    equal = torch.as_tensor(one[1] & other[1] & (one[0] == other[0]))
    return torch.where(equal, torch.as_tensor(one[0]).to(result), result), known | equal
