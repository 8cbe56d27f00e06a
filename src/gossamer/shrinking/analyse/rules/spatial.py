"""Padding, pooling, upsampling and reductions: along positions they keep the units, along units they pin them.

Along the dimensions that such an operation works over, its input has the same units everywhere. The result has them
too, and is constant where the input is constant over all of these dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload, OpOverloadPacket

from gossamer.shrinking.analyse.domain import NO_UNIT, AbstractValue, compress, unexpand, unknown_value, varying_dims
from gossamer.shrinking.analyse.facts import Analysis
from gossamer.shrinking.trace import arguments, shape_of

__all__ = ["SPATIAL", "over_dims", "over_space", "pad"]

aten = torch.ops.aten

_SUMS: set[Any] = {aten.sum.dim_IntList, aten.sum.default}

SPATIAL: dict[OpOverloadPacket, int] = {
    aten.max_pool1d: 1,
    aten.max_pool2d: 2,
    aten.max_pool3d: 3,
    aten.avg_pool1d: 1,
    aten.avg_pool2d: 2,
    aten.avg_pool3d: 3,
    aten.adaptive_avg_pool1d: 1,
    aten.adaptive_avg_pool2d: 2,
    aten.adaptive_avg_pool3d: 3,
    aten._adaptive_avg_pool2d: 2,
    aten.adaptive_max_pool1d: 1,
    aten.adaptive_max_pool2d: 2,
    aten.adaptive_max_pool3d: 3,
    aten.max_pool2d_with_indices: 2,
    aten.upsample_nearest1d: 1,
    aten.upsample_nearest2d: 2,
    aten.upsample_nearest3d: 3,
    aten._upsample_nearest_exact2d: 2,
    aten.upsample_linear1d: 1,
    aten.upsample_bilinear2d: 2,
    aten.upsample_trilinear3d: 3,
    aten.upsample_bicubic2d: 2,
}
"""Operations on the trailing dimensions, with how many these are."""


def over_space(analysis: Analysis, node: fx.Node) -> Any:
    """Pooling and upsampling: each channel alone, over the trailing dimensions."""
    assert isinstance(node.target, OpOverload)
    source = analysis.value(node.all_input_nodes[0])
    rank = source.labels.dim()
    return _over(analysis, node, source, list(range(rank - SPATIAL[node.target.overloadpacket], rank)))


def over_dims(analysis: Analysis, node: fx.Node) -> Any:
    """Sums, means, softmax and the like: over the dimensions in their arguments, or over all."""
    source = analysis.value(node.all_input_nodes[0])
    rank = source.labels.dim()
    named = arguments(node)
    given = named.get("dim", named.get("dims"))
    dims = list(range(rank)) if given is None or given == [] else given if isinstance(given, list) else [given]
    return _over(analysis, node, source, [d % rank for d in dims])


def _over(analysis: Analysis, node: fx.Node, source: AbstractValue, dims: list[int]) -> Any:
    moving = varying_dims(source.labels)
    across = [d for d in dims if d in moving]
    if across and len(across) == len(moving):
        return _over_units(analysis, node, source, dims)
    for dim in across:  # over branches of the same units: what meets is removed together
        analysis.labels.unify(source.labels, source.labels.narrow(dim, 0, 1))
    if isinstance(node.meta["val"], tuple | list):  # values and their indices
        values, indices = analysis.unknown_result(node)
        return _reduce(analysis, node, source, dims, tuple(values.shape)), indices
    return _reduce(analysis, node, source, dims, shape_of(node))


def _over_units(analysis: Analysis, node: fx.Node, source: AbstractValue, dims: Sequence[int]) -> Any:
    """A sum over units does not miss those that are zero; of a mean, a graph can restore the divisor."""
    is_mean = node.target is aten.mean.dim
    analysis.depends_on_form |= is_mean
    exact = node.target in _SUMS or (is_mean and analysis.rewrites_graph)
    if not exact or isinstance(node.meta["val"], tuple | list):
        analysis.graph_could_do_more |= is_mean and bool(unexpand(source.is_zero)[0].any())
        return analysis.opaque(node, f"{node.target} works across its units")
    labels, zero = source.labels, source.is_zero
    for dim in set(range(labels.dim())) - set(varying_dims(labels)):  # a unit is zero if it is at all positions
        labels, zero = labels.narrow(dim, 0, 1), zero.all(dim, keepdim=True)
    analysis.depend(torch.full((1, 1), NO_UNIT), labels.reshape(1, -1), foldable=zero.reshape(1, -1))
    return analysis.unknown_result(node)


def _reduce(
    analysis: Analysis, node: fx.Node, source: AbstractValue, dims: Sequence[int], shape: tuple[int, ...]
) -> AbstractValue:
    labels, known = source.labels, source.known
    for dim in dims:
        labels = labels.narrow(dim, 0, 1)
        known = known.narrow(dim, 0, 1) if known.stride(dim) == 0 else known.all(dim, keepdim=True)
    if len(shape) != source.labels.dim():
        for dim in sorted(dims, reverse=True):
            labels, known = labels.squeeze(dim), known.squeeze(dim)
    labels, known = labels.expand(shape), known.expand(shape)
    if not bool(unexpand(known)[0].any()):
        return unknown_value(labels, source.constant.dtype)
    return AbstractValue(labels, compress(_execute(analysis, node, source)), known)


def _execute(analysis: Analysis, node: fx.Node, source: AbstractValue) -> Tensor:
    """The operation on the constants, so that borders come out as they do in the model."""
    target: Any = node.target
    first = node.all_input_nodes[0]
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: source.constant if n is first else analysis.values[n])
    result = target(*args, **kwargs)
    found: Tensor = result[0] if isinstance(result, tuple) else result
    return found


def pad(analysis: Analysis, node: fx.Node) -> AbstractValue:
    """Padding in space keeps the units; padding along the unit dimension adds positions without a unit."""
    source = analysis.value(node.all_input_nodes[0])
    named = arguments(node)
    amounts = analysis.numbers(named["pad"])
    padded = [source.labels.dim() - 1 - i // 2 for i, amount in enumerate(amounts) if amount != 0]
    shape = shape_of(node)
    if any(dim in varying_dims(source.labels) for dim in padded):
        if node.target is not aten.constant_pad_nd.default and named.get("mode", "constant") != "constant":
            return analysis.opaque(node, "its unit dimension is padded with other units")  # type: ignore[no-any-return]
        labels = torch.constant_pad_nd(source.labels, amounts, NO_UNIT)
    else:
        labels = source.labels
        for dim in padded:
            labels = labels.narrow(dim, 0, 1)
        labels = labels.expand(shape)
    if not source.has_constants:
        return unknown_value(labels, source.constant.dtype)
    target: Any = node.target
    args, kwargs = tuple(analysis.numbers(node.args[1:])), analysis.numbers(node.kwargs)
    constant = target(source.constant, *args, **kwargs)
    # The padding itself is known, so the mask of unknown positions is padded with zeros: without the fill value.
    without_fill = args[:1] if target is aten.constant_pad_nd.default else args[:2]
    unknown = target((~source.known).to(source.constant.dtype), *without_fill)
    return AbstractValue(labels, compress(constant), compress(unknown == 0))
