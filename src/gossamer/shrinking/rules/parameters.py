"""Weights seen through views: which parameter element stands where in a transposed, sliced or split weight."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor, fx

from gossamer.shrinking.analysis import Analysis, ParameterView
from gossamer.shrinking.rules.views import PERMUTES, VIEWS, run_view

__all__ = ["bind_vector", "parameter_view", "vector_value"]


def parameter_view(run: Analysis, node: Any) -> ParameterView | None:
    """The parameter behind a weight, dimension by dimension; None when it is computed or mixes dimensions."""
    name = run.state(node)
    if name is not None:
        shape = run.traced.tensors[name].shape
        return ParameterView(name, tuple(range(len(shape))), tuple(torch.arange(n) for n in shape))
    found = _positions(run, node)
    if found is None or not isinstance(found[1], Tensor):
        return None
    return _by_dimension(found[0], found[1], run.traced.tensors[found[0]].shape)


def bind_vector(run: Analysis, node: Any, labels: Tensor) -> None:
    """A one-dimensional parameter (bias, scale, running mean) carries these labels, if it is there at all."""
    if node is None:
        return
    view = parameter_view(run, node)
    if view is None or len(view.dims) != 1:
        run.labels.pin(labels, f"{node} is computed, not a parameter")
    else:
        run.bind(view, 0, labels)


def vector_value(run: Analysis, node: Any) -> Tensor | None:
    """The numbers of a one-dimensional parameter, also when it is a part of one; None if it is computed."""
    view = None if node is None else parameter_view(run, node)
    if view is None or len(view.dims) != 1:
        return None
    return run.tensor(view.name).index_select(view.dims[0], view.index[0]).flatten()


def _positions(run: Analysis, node: Any) -> tuple[str, Any] | None:
    """The flat positions in a parameter that a chain of views shows."""
    if not isinstance(node, fx.Node):
        return None
    name = run.state(node)
    if name is not None:
        tensor = run.traced.tensors[name]
        return name, torch.arange(tensor.numel()).view(tensor.shape)
    if node.op != "call_function":
        return None
    if node.target is operator.getitem:
        inner = _positions(run, node.args[0])
        return None if inner is None else (inner[0], inner[1][node.args[1]])
    sources = [n for n in node.all_input_nodes if "val" in n.meta and isinstance(n.meta["val"], Tensor)]
    # in graph form the sizes of a split weight would have to be spelled anew, which is not done
    shown = PERMUTES if run.rewrites_graph else VIEWS
    if node.target not in shown or len(sources) != 1:
        return None
    inner = _positions(run, sources[0])
    return None if inner is None else (inner[0], run_view(run, node, {sources[0]: inner[1]}))


def _by_dimension(name: str, positions: Tensor, shape: torch.Size) -> ParameterView | None:
    """Positions as a product of indices into distinct dimensions of the parameter, if they are one."""
    grid = torch.stack(torch.unravel_index(positions, shape), dim=-1)
    origin = grid[(0,) * positions.dim()]
    dims: list[int] = []
    index: list[Tensor] = []
    for axis in range(positions.dim()):
        line = grid[tuple(slice(None) if a == axis else 0 for a in range(positions.dim()))]
        moving = [d for d in range(len(shape)) if bool((line[:, d] != origin[d]).any())]
        spare = [d for d in range(len(shape)) if d not in dims]
        dim = moving[0] if moving else next((d for d in spare if shape[d] == 1), -1)
        if len(moving) > 1 or dim in dims or dim < 0:
            return None
        dims.append(dim)
        index.append(line[:, dim])
    mesh = torch.meshgrid(*index, indexing="ij") if index else ()
    for dim, expected in zip(dims, mesh, strict=True):
        if not torch.equal(grid[..., dim], expected):
            return None
    return ParameterView(name, tuple(dims), tuple(index))
