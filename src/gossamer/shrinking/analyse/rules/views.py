"""Views and concatenations: operations that move values, executed on labels and constants alike.

The same operations on a parameter give a `ParameterView`, so that a transposed, sliced or split weight is still known
element by element.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._ops import OpOverload

from gossamer.shrinking.analyse.constraints import Rectangle
from gossamer.shrinking.analyse.dependencies import ParameterView
from gossamer.shrinking.analyse.domain import (
    AbstractValue,
    compress,
    expand_along,
    unexpand,
    varying_dims,
)
from gossamer.shrinking.analyse.facts import Analysis
from gossamer.shrinking.trace import arguments

__all__ = [
    "VIEWS",
    "bind_vector",
    "elements",
    "in_step",
    "parameter_view",
    "vector_value",
    "view",
]

aten = torch.ops.aten

_PERMUTATIONS: set[OpOverload] = {
    aten.permute.default,
    aten.transpose.int,
    aten.t.default,
    aten.movedim.int,
    aten.movedim.intlist,
    aten.swapaxes.default,
    aten.swapdims.default,
    aten.numpy_T.default,
    aten.mT.default,
}

VIEWS: set[OpOverload] = _PERMUTATIONS | {
    aten.view.default,
    aten._unsafe_view.default,
    aten.reshape.default,
    aten.flatten.using_ints,
    aten.unflatten.int,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.unsqueeze.default,
    aten.expand.default,
    aten.expand_as.default,
    aten.slice.Tensor,
    aten.select.int,
    aten.narrow.default,
    aten.split.Tensor,
    aten.split.sizes,
    aten.split_with_sizes.default,
    aten.chunk.default,
    aten.unbind.int,
    aten.cat.default,
    aten.concat.default,
    aten.stack.default,
    aten.repeat.default,
    aten.tile.default,
    aten.repeat_interleave.self_int,
    aten.clone.default,
    aten.contiguous.default,
    aten.detach.default,
    aten.detach_.default,
    aten.alias.default,
    aten.lift_fresh_copy.default,
    aten.flip.default,
    aten.view_as.default,
    aten.reshape_as.default,
}

_PARTIAL: set[OpOverload] = {aten.select.int, aten.narrow.default}
_SPLITS: set[OpOverload] = {
    aten.split.Tensor,
    aten.split.sizes,
    aten.split_with_sizes.default,
    aten.chunk.default,
    aten.unbind.int,
}

# An expanded tensor is not contiguous, so a view of the value may have to be a copy of its labels.
_AS_RESHAPE = {
    aten.view.default: aten.reshape.default,
    aten._unsafe_view.default: aten.reshape.default,
    aten.view_as.default: aten.reshape_as.default,
}


def view(analysis: Analysis, node: fx.Node) -> Any:
    """Execute the operation on labels, constants and known masks."""
    sources = [n for n in node.all_input_nodes if not isinstance(analysis.values.get(n), int)]
    values = {n: analysis.value(n) for n in sources}
    if _takes_a_part(node) and all(analysis.is_stored(n) for n in sources):
        # A position table or a mask, of which the example needs a part: an input of another size needs another.
        (source, value), dim = *values.items(), arguments(node)["dim"]
        analysis.labels.unify(value.labels, value.labels.narrow(dim, 0, 1))
        values[source] = _known_along(value, dim)
    labels = _execute(analysis, node, {n: v.labels for n, v in values.items()})
    constant = _execute(analysis, node, {n: v.constant for n, v in values.items()})
    known = _execute(analysis, node, {n: v.known for n, v in values.items()})
    if node.target is aten.expand.default and isinstance(analysis.caller(node), nn.MultiheadAttention):
        labels = _copies_per_head(analysis, node, next(iter(values.values())), labels)
    if node.target is aten.slice.Tensor and arguments(node)["step"] != 1:
        _constrain_strided(analysis, node, next(iter(values.values())).labels)
    if node.target in _PERMUTATIONS:
        _constrain_interleaved(analysis, node, next(iter(values.values())).labels)
    if isinstance(labels, Tensor):
        return AbstractValue(compress(labels), compress(constant), compress(known))
    return tuple(AbstractValue(*map(compress, part)) for part in zip(labels, constant, known, strict=True))


def in_step(analysis: Analysis, value: AbstractValue, dim: int) -> AbstractValue:
    """The value with units that are the same at every index along a dimension: what it has there leaves together."""
    if dim not in varying_dims(value.labels):
        return value
    first = value.labels.narrow(dim, 0, 1)
    analysis.labels.unify(value.labels, first)
    return AbstractValue(first.expand(value.shape), value.constant, value.known)


def _known_along(value: AbstractValue, dim: int) -> AbstractValue:
    """The value with constants only where the whole dimension has one: rows that the example leaves out may differ."""
    if value.shape[dim] == 0:
        return value
    first = value.constant.narrow(dim, 0, 1)
    alike = (value.known & (value.constant == first)).all(dim, keepdim=True)
    return AbstractValue(value.labels, value.constant, alike.expand(value.shape))


def _takes_a_part(node: fx.Node) -> bool:
    """Whether a part of the input may be left out: by a slice, or by a split of which not every part is read."""
    if node.target in _SPLITS:
        return len({user.args[1] for user in node.users if user.users}) < len(node.meta["val"])
    if node.target is aten.slice.Tensor:  # `x[:]`, as the exporter writes it
        named = arguments(node)
        return not (named["start"] in (None, 0) and named["end"] in (None, sys.maxsize) and named["step"] == 1)
    return node.target in _PARTIAL


def _execute(analysis: Analysis, node: fx.Node, tensors: Mapping[fx.Node, Tensor]) -> Any:
    """Run an operation on these tensors in place of its inputs."""
    target: Any = node.target
    if target is aten.contiguous.default or target is aten.clone.default:
        return tensors[node.all_input_nodes[0]]

    def substitute(source: fx.Node) -> Any:
        return tensors[source] if source in tensors else analysis.values[source]

    args = fx.map_arg(node.args, substitute)
    kwargs = fx.map_arg(node.kwargs, substitute)
    return _AS_RESHAPE.get(target, target)(*args, **kwargs)


def _constrain_interleaved(analysis: Analysis, node: fx.Node, labels: Tensor) -> None:
    """Rows may keep different units only while they stay rows: if the dimensions change order, require a rectangle."""
    dims = varying_dims(labels)
    if len(dims) < 2:
        return
    # The sizes of this tensor name its dimensions, so the result shows where each one went.
    probe = torch.empty(()).expand([d + 2 for d in range(labels.dim())])
    moved = _execute(analysis, node, {node.all_input_nodes[0]: probe})
    after = [int(size) - 2 for size in moved.shape]
    if [d for d in after if d in dims] != list(dims):
        analysis.rectangles.append(
            Rectangle(labels, "units of several groups are interleaved, so each group must lose the same ones")
        )


def _copies_per_head(analysis: Analysis, node: fx.Node, source: AbstractValue, labels: Tensor) -> Tensor:
    """`nn.MultiheadAttention` copies a padding mask for every head: a copy goes with its head, and pins nothing."""
    sizes: Any = node.args[1]
    copied = [
        d for d in range(labels.dim()) if source.shape[d] == 1 and labels.size(d) > 1 and sizes[d] == labels.size(d)
    ]
    if source.has_units or len(copied) != 1:
        return labels
    return expand_along(analysis.labels.fresh(labels.size(copied[0])), labels.shape, copied[0])


def _constrain_strided(analysis: Analysis, node: fx.Node, labels: Tensor) -> None:
    """`x[:, start::step]` takes one unit of every `step`: these leave together, so that the others keep their place."""
    named = arguments(node)
    dim, step = named["dim"] % labels.dim(), named["step"]
    start, end, length = analysis.numbers(named["start"]) or 0, analysis.numbers(named["end"]), labels.size(dim)
    if dim not in varying_dims(labels):
        return
    if not 0 <= start < step or length % step or (end is not None and end < length):
        analysis.labels.pin(unexpand(labels)[0], "a slice with a step takes a part of its units")
        return
    blocks = unexpand(labels, keep=dim)[0].movedim(dim, -1)
    blocks = blocks.reshape(*blocks.shape[:-1], -1, step)
    analysis.labels.unify(blocks, blocks[..., :1])


def parameter_view(analysis: Analysis, node: Any) -> ParameterView | None:
    """The parameter behind a weight; None when the weight is computed or its dimensions are mixed."""
    name = analysis.state_name(node)
    if name is not None:
        shape = analysis.traced.tensors[name].shape
        return ParameterView(name, tuple(range(len(shape))), tuple(torch.arange(n) for n in shape))
    found = _positions(analysis, node)
    if found is None or not isinstance(found[1], Tensor):
        return None
    return _by_dimension(found[0], found[1], analysis.traced.tensors[found[0]].shape)


def bind_vector(analysis: Analysis, node: Any, labels: Tensor) -> None:
    """A one-dimensional parameter (bias, scale, running mean), if there is one, carries these labels."""
    if node is None:
        return
    found = parameter_view(analysis, node)
    if found is None or len(found.dims) != 1:
        analysis.labels.pin(labels, f"{node} is computed, not a parameter")
    else:
        analysis.bind(found, 0, labels)


def vector_value(analysis: Analysis, node: Any) -> Tensor | None:
    """The elements of a one-dimensional parameter or of a view of one; None if it is computed."""
    found = None if node is None else parameter_view(analysis, node)
    if found is None or len(found.dims) != 1:
        return None
    return elements(analysis, found)


def elements(analysis: Analysis, view: ParameterView) -> Tensor:
    """The elements of a parameter that a view selects, with the dimensions of the view."""
    tensor = analysis.tensor(view.name)
    rest = [dim for dim in range(tensor.dim()) if dim not in view.dims]
    for dim in rest:
        tensor = tensor.narrow(dim, view.origin[dim], 1)
    for dim, index in zip(view.dims, view.index, strict=True):
        if index.numel() != tensor.size(dim) or not torch.equal(index, torch.arange(tensor.size(dim))):
            tensor = tensor.index_select(dim, index)
    return tensor.permute(*rest, *view.dims).reshape([index.numel() for index in view.index])


def _positions(analysis: Analysis, node: Any) -> tuple[str, Any] | None:
    """The flat positions in a parameter that a chain of views selects."""
    if not isinstance(node, fx.Node):
        return None
    name = analysis.state_name(node)
    if name is not None:
        tensor = analysis.traced.tensors[name]
        return name, torch.arange(tensor.numel()).view(tensor.shape)
    if node.op != "call_function":
        return None
    if node.target is operator.getitem:
        inner = _positions(analysis, node.args[0])
        return None if inner is None else (inner[0], inner[1][node.args[1]])
    sources = [n for n in node.all_input_nodes if "val" in n.meta and isinstance(n.meta["val"], Tensor)]
    if node.target not in VIEWS or len(sources) != 1:
        return None
    if node.target not in _PERMUTATIONS | {aten.select.int}:  # a graph does not rewrite the sizes of a split weight
        analysis.depends_on_form = True
        if analysis.rewrites_graph:
            return None
    inner = _positions(analysis, sources[0])
    return None if inner is None else (inner[0], _execute(analysis, node, {sources[0]: inner[1]}))


def _by_dimension(name: str, positions: Tensor, shape: torch.Size) -> ParameterView | None:
    """Positions as a product of indices into distinct dimensions of the parameter, or None if they are not one."""
    grid = torch.stack(torch.unravel_index(positions, shape), dim=-1)
    origin = grid[(0,) * positions.dim()]
    dims: list[int] = []
    index: list[Tensor] = []
    for axis in range(positions.dim()):
        line = grid[tuple(slice(None) if a == axis else 0 for a in range(positions.dim()))]
        moving = [d for d in range(len(shape)) if bool((line[:, d] != origin[d]).any())]
        unused = [d for d in range(len(shape)) if d not in dims]
        dim = moving[0] if moving else next((d for d in unused if shape[d] == 1), -1)
        if len(moving) > 1 or dim in dims or dim < 0:
            return None
        dims.append(dim)
        index.append(line[:, dim])
    mesh = torch.meshgrid(*index, indexing="ij") if index else ()
    for dim, expected in zip(dims, mesh, strict=True):
        if not torch.equal(grid[..., dim], expected):
            return None
    return ParameterView(name, tuple(dims), tuple(index), tuple(origin.tolist()))
