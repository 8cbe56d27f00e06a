"""Indexing: `x[index]`, `x[mask]`, `index_select` and `x[:, 0] = part`, along positions and along units."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from gossamer.shrinking.analyse.domain import AbstractValue, compress, unexpand, unknown_value, varying_dims
from gossamer.shrinking.analyse.facts import Analysis
from gossamer.shrinking.trace import arguments, shape_of

__all__ = ["SCATTERS", "gather", "index_select", "scatter"]

aten = torch.ops.aten

_TAKES = {aten.select_scatter.default: aten.select.int, aten.slice_scatter.default: aten.slice.Tensor}
"""Operations that put a part into a tensor, with those that take it out."""

SCATTERS = set(_TAKES)


def gather(analysis: Analysis, node: fx.Node) -> Any:
    """`x[index]` with a constant index: units along an indexed dimension are kept or removed together."""
    source_node, indices = node.args[0], node.args[1]
    assert isinstance(source_node, fx.Node)
    assert isinstance(indices, tuple | list)
    constant = [None if i is None else _constant_index(analysis, i) for i in indices]
    source = analysis.value(source_node)
    if any(i is not None and c is None for i, c in zip(indices, constant, strict=True)):
        return _gather_positions(analysis, node, source, indices)
    for dim, index in enumerate(constant):
        if index is not None:
            analysis.labels.unify(source.labels, source.labels.narrow(dim, 0, 1))
    target: Any = node.target
    fields = (source.labels, source.constant, source.known)
    return AbstractValue(*(compress(target(f, constant)) for f in fields))


def index_select(analysis: Analysis, node: fx.Node) -> Any:
    """Along a dimension without units any index will do; along the units it must be constant, and they stay in step."""
    named = arguments(node)
    source = analysis.value(named["self"])
    dim = named["dim"] % source.labels.dim()
    index = _constant_index(analysis, named["index"])
    if index is None:
        if dim in varying_dims(source.labels):
            return analysis.opaque(node, "its units are selected by a computed index")
        return AbstractValue(
            source.labels.narrow(dim, 0, 1).expand(shape_of(node)),
            source.constant.narrow(dim, 0, 1).expand(shape_of(node)),
            (unexpand(source.known)[0].all(dim, keepdim=True) & _same_along(source.constant, dim)).expand(
                shape_of(node)
            ),
        )
    analysis.labels.unify(source.labels, source.labels.narrow(dim, 0, 1))
    fields = (source.labels, source.constant, source.known)
    return AbstractValue(*(compress(f.index_select(dim, index)) for f in fields))


def scatter(analysis: Analysis, node: fx.Node) -> Any:
    """A tensor with another part: what is put somewhere goes with the units that are there."""
    named = arguments(node)
    whole, part = analysis.value(named["self"]), analysis.value(named["src"])
    if named["dim"] % whole.labels.dim() in varying_dims(whole.labels):
        return analysis.opaque(node, "a part of its units is overwritten")
    target: Any = node.target
    place, options = analysis.numbers(node.args[2:]), analysis.numbers(node.kwargs)
    taken = _TAKES[target](whole.labels, *place, **options)
    analysis.labels.unify(taken, part.labels)
    fields = ((whole.constant, part.constant), (whole.known, part.known))
    return AbstractValue(whole.labels, *(compress(target(*pair, *place, **options)) for pair in fields))


def _same_along(tensor: Tensor, dim: int) -> Tensor:
    narrow = unexpand(tensor)[0]
    return (narrow == narrow.narrow(dim, 0, 1)).all(dim, keepdim=True)


def _gather_positions(analysis: Analysis, node: fx.Node, source: AbstractValue, indices: Sequence[Any]) -> Any:
    """`x[mask]` with a computed index: exact as long as it selects among positions, not among units."""
    count = 0
    for index in indices:  # a mask stands for as many dimensions as it has
        value = None if index is None else analysis.value(index)
        count += value.labels.dim() if value is not None and value.constant.dtype == torch.bool else 1
    if None in indices or any(d < count for d in varying_dims(source.labels)):
        return analysis.opaque(node, "it is indexed by a computed tensor")
    for index in indices:
        analysis.labels.pin(analysis.value(index).labels, "it is an index")
    shape = shape_of(node)
    first = (0,) * count
    if any(d < count for t in (source.constant, source.known) for d in varying_dims(t)):
        return unknown_value(source.labels[first].expand(shape), source.constant.dtype)
    return AbstractValue(*(f[first].expand(shape) for f in (source.labels, source.constant, source.known)))


def _constant_index(analysis: Analysis, node: Any) -> Tensor | None:
    """An index that does not depend on the input, or None."""
    own = analysis.state_tensor(node)
    if own is not None:
        return own
    value = analysis.value(node)
    return value.constant if bool(value.known.all()) and not value.has_units else None
