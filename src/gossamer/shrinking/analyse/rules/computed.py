"""Weights that are computed from parameters row by row: weight norm, standardised weights.

    weight norm            w[r] = g[r] * v[r] / |v[r]|
    standardised weights   w[r] = gain[r] * (v[r] - mean(v[r])) / std(v[r])

Row r of such a weight depends on row r of each parameter, so an output unit takes these rows along when it leaves. The
weight itself is computed once, as it is; it needs one label per row, not one per element.

An input unit is another matter: its column enters the statistics of every row. A column of zeros does not change a norm
and may leave a weight norm; where means are subtracted, all inputs stay.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._ops import OpOverload

from gossamer.shrinking.analyse.domain import expand_along, unknown_value
from gossamer.shrinking.analyse.facts import Analysis
from gossamer.shrinking.analyse.rules.pointwise import is_pointwise
from gossamer.shrinking.trace import arguments

__all__ = ["RowWise", "bind_rows", "row_wise"]

aten = torch.ops.aten

_RESHAPES = {
    aten.view.default,
    aten.reshape.default,
    aten.reshape_as.default,
    aten.view_as.default,
    aten.flatten.using_ints,
    aten.unsqueeze.default,
    aten.squeeze.dim,
    aten.contiguous.default,
    aten.clone.default,
}
_REDUCTIONS = {
    aten.mean.dim,
    aten.sum.dim_IntList,
    aten.var.correction,
    aten.var.dim,
    aten.std.correction,
    aten.std.dim,
    aten.linalg_vector_norm.default,
    aten.norm.ScalarOpt_dim,
    aten.amax.default,
}


@dataclass(frozen=True)
class RowWise:
    """A tensor of which row r, along dimension `rows`, depends on row r of `parameters` only.

    `parameters` maps names to the dimension of the rows. `rows` is None for what is the same for all rows. `source` is
    the parameter of the same shape from which a column of zeros may be taken away without changing the other columns,
    or None. `nodes` are the operations that compute the tensor, with the dimension of the rows in each result.
    """

    tensor: Tensor
    rows: int | None
    parameters: Mapping[str, int]
    source: str | None
    nodes: Mapping[fx.Node, int | None]


def row_wise(analysis: Analysis, node: Any) -> RowWise | None:
    """How a weight is computed from parameters, or None if not row by row."""
    if not isinstance(node, fx.Node):
        return None
    name = analysis.state_name(node)
    if name is not None:
        if analysis.training and not isinstance(analysis.traced.tensors[name], nn.Parameter):
            return None  # a buffer that the forward may update
        tensor = analysis.tensor(name)
        rows = 0 if tensor.numel() > 1 else None
        return RowWise(tensor, rows, {} if rows is None else {name: 0}, name if rows == 0 else None, {})
    if node.op != "call_function" or not isinstance(node.target, OpOverload):
        return None
    operands = {n: row_wise(analysis, n) for n in node.all_input_nodes}
    if not operands or any(operand is None for operand in operands.values()):
        return None
    known: dict[fx.Node, RowWise] = {n: o for n, o in operands.items() if o is not None}
    rows, source = _rows_of_result(node, known)
    if rows == -1:
        return None
    return _computed(node, known, rows, source)


def bind_rows(analysis: Analysis, weight: RowWise, labels: Tensor) -> None:
    """The rows of all parameters, and of all values in between, carry these labels."""
    for name, dim in weight.parameters.items():
        own = analysis.axis_labels.setdefault(name, {})
        if dim not in own:
            own[dim] = analysis.labels.fresh(len(labels))
        analysis.labels.unify(own[dim], labels)
    for node, rows in weight.nodes.items():
        if rows is not None:
            shape = tuple(node.meta["val"].shape)
            analysis.values[node] = unknown_value(expand_along(labels, shape, rows), node.meta["val"].dtype)


def _computed(node: fx.Node, operands: Mapping[fx.Node, RowWise], rows: int | None, source: str | None) -> RowWise:
    target: Any = node.target
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: operands[n].tensor)
    parameters = {name: dim for operand in operands.values() for name, dim in operand.parameters.items()}
    nodes = {n: r for operand in operands.values() for n, r in operand.nodes.items()} | {node: rows}
    return RowWise(target(*args, **kwargs), rows, parameters, source, nodes)


def _rows_of_result(node: fx.Node, operands: Mapping[fx.Node, RowWise]) -> tuple[int | None, str | None]:
    """The dimension of the rows in the result (-1 if the rows are mixed), and its source."""
    first = next(iter(operands.values()))
    named = arguments(node)
    shape = tuple(node.meta["val"].shape) if isinstance(node.meta["val"], Tensor) else ()
    if all(operand.rows is None for operand in operands.values()):
        return None, None
    if node.target in _RESHAPES:
        return _after_reshape(first, shape), first.source if shape == tuple(first.tensor.shape) else None
    if node.target in _REDUCTIONS:
        return _after_reduction(first, named), None
    if node.target is aten._weight_norm.default:
        of_rows = named["dim"] == 0 and all(operand.rows == 0 for operand in operands.values())
        return (0, first.source) if of_rows else (-1, None)
    if node.target is aten.batch_norm.default:
        return _after_standardisation(named, operands), None
    if is_pointwise(node.target):  # type: ignore[arg-type]
        return _after_broadcast(operands, shape), None
    return -1, None


def _after_reshape(value: RowWise, shape: tuple[int, ...]) -> int:
    if value.rows is None:
        return -1
    before, count = math.prod(value.tensor.shape[: value.rows]), value.tensor.size(value.rows)
    places = (d for d in range(len(shape)) if math.prod(shape[:d]) == before and shape[d] == count)
    return next(places, -1)


def _after_reduction(value: RowWise, named: Mapping[str, Any]) -> int:
    dims: Any = named.get("dim")
    listed = list(dims) if isinstance(dims, list | tuple) else [dims]
    if value.rows is None or dims is None or not listed:
        return -1
    reduced = {d % value.tensor.dim() for d in listed}
    if value.rows in reduced:
        return -1
    return value.rows if named["keepdim"] else value.rows - sum(d < value.rows for d in reduced)


def _after_standardisation(named: Mapping[str, Any], operands: Mapping[fx.Node, RowWise]) -> int:
    """A batch norm over one sample, whose channels are the rows, with its own statistics."""
    batch_statistics = named["training"] and named["running_mean"] is None and named["running_var"] is None
    vectors = [named[part] for part in ("weight", "bias") if named[part] is not None]
    fits = operands[named["input"]].rows == 1 and operands[named["input"]].tensor.size(0) == 1
    return 1 if batch_statistics and fits and all(operands[v].rows == 0 for v in vectors) else -1


def _after_broadcast(operands: Mapping[fx.Node, RowWise], shape: tuple[int, ...]) -> int:
    """Rows must meet rows, and what has none must be the same for all of them."""
    places = {len(shape) - o.tensor.dim() + o.rows for o in operands.values() if o.rows is not None}
    if len(places) != 1:
        return -1
    rows = places.pop()
    for operand in operands.values():
        own = rows - (len(shape) - operand.tensor.dim())
        if operand.rows is None and own >= 0 and operand.tensor.size(own) > 1:
            return -1
    return rows
