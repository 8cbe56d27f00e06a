"""Pooling, upsampling and sums over positions: what happens in space leaves the units alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload, OpOverloadPacket

from gossamer.shrinking.analysis import Analysis
from gossamer.shrinking.shadow import Shadow, settle, thin, varying

__all__ = ["over_dims", "over_space", "spatial_rank"]

aten = torch.ops.aten

_SPACE: dict[OpOverloadPacket, int] = {
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


def spatial_rank(op: Any) -> int | None:
    """Over how many trailing dimensions an operation works; None for operations of other kinds."""
    return _SPACE.get(op.overloadpacket) if isinstance(op, OpOverload) else None


def over_space(run: Analysis, node: fx.Node) -> Any:
    """Each channel by itself, over the trailing dimensions."""
    source = run.shadow(node.all_input_nodes[0])
    rank = spatial_rank(node.target)
    assert rank is not None
    space = range(source.labels.dim() - rank, source.labels.dim())
    if any(d in space for d in varying(source.labels)):
        return run.opaque(node, f"{node.target} works across its units")
    if isinstance(node.meta["val"], tuple | list):  # the maxima and where they are
        shape = tuple(run.fresh_result(node)[0].shape)
        return _over_space(run, node, source, shape), run.fresh_result(node)[1]
    return _over_space(run, node, source, run.shape(node))


def _over_space(run: Analysis, node: fx.Node, source: Shadow, shape: tuple[int, ...]) -> Shadow:
    space = range(source.labels.dim() - (spatial_rank(node.target) or 0), source.labels.dim())
    labels = _at_origin(source.labels, space).expand(shape)
    known = _collapse(source.known, list(space)).expand(shape)
    if not bool(thin(known)[0].any()):
        return Shadow(labels, source.value.new_zeros(()).expand(shape), known)
    return Shadow(labels, settle(_execute(run, node, source)), known)


def over_dims(run: Analysis, node: fx.Node) -> Any:
    """Sums, means, softmax and the like: along positions they keep the units, along units they need them all."""
    source = run.shadow(node.all_input_nodes[0])
    rank = source.labels.dim()
    named = run.arguments(node)
    given = named.get("dim", named.get("dims"))
    dims = list(range(rank)) if given is None or given == [] else given if isinstance(given, list) else [given]
    dims = [d % rank for d in dims]
    if any(d in dims for d in varying(source.labels)):
        return run.opaque(node, f"{node.target} works across its units")
    if isinstance(node.meta["val"], tuple | list):  # values and where they are
        values, places = run.fresh_result(node)
        return _over_dims(run, node, source, dims, tuple(values.shape)), places
    return _over_dims(run, node, source, dims, run.shape(node))


def _over_dims(run: Analysis, node: fx.Node, source: Shadow, dims: list[int], shape: tuple[int, ...]) -> Shadow:
    labels = _at_origin(source.labels, dims)
    known = _collapse(source.known, dims)
    if len(shape) != source.labels.dim():
        for dim in sorted(dims, reverse=True):
            labels, known = labels.squeeze(dim), known.squeeze(dim)
    labels, known = labels.expand(shape), known.expand(shape)
    if not bool(thin(known)[0].any()):
        return Shadow(labels, source.value.new_zeros(()).expand(shape), known)
    value = _execute(run, node, source)
    return Shadow(labels, settle(value), known)


def _at_origin(tensor: Tensor, dims: Any) -> Tensor:
    for dim in dims:
        tensor = tensor.narrow(dim, 0, 1)
    return tensor


def _collapse(known: Tensor, dims: list[int]) -> Tensor:
    for dim in dims:
        known = known.narrow(dim, 0, 1) if known.stride(dim) == 0 else known.all(dim, keepdim=True)
    return known


def _execute(run: Analysis, node: fx.Node, source: Shadow) -> Tensor:
    """The operation on the constants themselves, borders and all."""
    target: Any = node.target
    first = node.all_input_nodes[0]
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: source.value if n is first else run.shadows[n])
    result = target(*args, **kwargs)
    found: Tensor = result[0] if isinstance(result, tuple) else result
    return found
