"""Apply a plan to the exported graph, in which every size that the user's forward spells out can be rewritten.

The result is a plain `fx.GraphModule` with parameters of its own, under the names that they have in the model.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._ops import OpOverload

from gossamer.shrinking.analyse import AbstractValue, Analysis
from gossamer.shrinking.analyse.domain import varying_dims
from gossamer.shrinking.analyse.rules.layers import CONVOLUTIONS
from gossamer.shrinking.apply.guards import guard
from gossamer.shrinking.apply.module import take
from gossamer.shrinking.decide.liveness import Decision
from gossamer.shrinking.decide.plan import Fold, Indices, Plan
from gossamer.shrinking.trace import arguments

__all__ = ["smaller_graph"]

aten = torch.ops.aten


def smaller_graph(analysis: Analysis, plan: Plan, decision: Decision) -> fx.GraphModule:
    """The exported graph with smaller parameters, and with every literal size rewritten to fit them.

    It raises a `GuardError` for inputs that it was not exported for; symbolic sizes may be one (`refuse_size_one`).
    """
    unlifted = analysis.traced.program.module()
    graph = unlifted.graph
    module = fx.GraphModule(unlifted, graph, class_name=type(analysis.model).__name__)
    _replace_tensors(module, analysis, plan)
    by_name = {node.name: node for node in module.graph.nodes}
    sizes = _Sizes(analysis, decision)
    for node in analysis.traced.graph.nodes:
        rewrite = REWRITES.get(node.target)
        if rewrite is not None and node.name in by_name:
            rewrite(sizes, node, by_name[node.name])
    for fold in plan.folds:
        if fold.bias is None:
            _create_bias(module, analysis, fold, by_name)
    guard(module, analysis.model, analysis.traced)
    module.graph.lint()
    module.recompile()
    return module


def _replace_tensors(module: fx.GraphModule, analysis: Analysis, plan: Plan) -> None:
    """Give the graph tensors of its own: at the kept indices, with the folded constants added."""
    replaced: dict[int, Tensor] = {}
    amounts = {fold.bias: fold.amount for fold in plan.folds if fold.bias is not None}
    canonical = {id(tensor): name for name, tensor in analysis.traced.tensors.items()}
    for owner in module.modules():
        stores: tuple[dict[str, Any], ...] = (owner._parameters, owner._buffers)
        for store in stores:
            for key, tensor in list(store.items()):
                if tensor is None:
                    continue
                if id(tensor) not in replaced:
                    name = canonical.get(id(tensor), "")
                    replaced[id(tensor)] = _smaller(tensor, plan.kept.get(name, {}), amounts.get(name))
                store[key] = replaced[id(tensor)]


def _smaller(tensor: Tensor, indices: Indices, amount: Tensor | None) -> Tensor:
    part = take(tensor.detach(), indices).clone(memory_format=torch.contiguous_format)
    if amount is not None:
        part += amount.to(part)
    return nn.Parameter(part, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else part


def _create_bias(module: fx.GraphModule, analysis: Analysis, fold: Fold, by_name: dict[str, fx.Node]) -> None:
    """A new bias, as a parameter beside the weight and as an argument of every call of the layer."""
    path = fold.weight.rpartition(".")[0]
    owner = module.get_submodule(path)
    weight = owner.get_parameter(fold.weight.rpartition(".")[2])
    owner.register_parameter("bias", nn.Parameter(fold.amount.to(weight.detach()), weight.requires_grad))
    for call in analysis.layers[fold.weight, None, ""].calls:
        node = by_name[call.node_name]
        with module.graph.inserting_before(node):
            bias = module.graph.get_attr(f"{path}.bias" if path else "bias")
        node.args = (*node.args[:2], bias, *node.args[3:])


class _Sizes:
    """Shapes and indices before and after, for the nodes of the analysed graph."""

    def __init__(self, analysis: Analysis, decision: Decision) -> None:
        self.analysis = analysis
        self.decision = decision

    def labels(self, node: Any) -> Tensor | None:
        found = self.analysis.values.get(node)
        return found.labels if isinstance(found, AbstractValue) else None

    def after(self, node: Any) -> tuple[int, ...] | None:
        labels = self.labels(node)
        return None if labels is None else self.decision.shape_after(labels)

    def index_after(self, node: Any, dim: int, index: int) -> int:
        """How many of the first `index` positions along a dimension are kept."""
        labels = self.labels(node)
        if labels is None or dim % labels.dim() not in varying_dims(labels):
            return index
        dims = varying_dims(labels)
        kept = self.decision.keeps(labels[tuple(slice(None) if d in dims else 0 for d in range(labels.dim()))])
        kept = kept.movedim(dims.index(dim % labels.dim()), -1)
        rows = kept.reshape(-1, kept.size(-1))
        rows = rows[rows.any(1)]
        return int(rows[:, :index].sum(1).max())


Rewrite = Callable[[_Sizes, fx.Node, fx.Node], None]
"""Receives the node of the analysed graph, and its copy to change."""


def _new_sizes(sizes: Sequence[Any], old: Sequence[int], new: Sequence[int], at: fx.Node) -> list[Any]:
    """Size arguments for the new shape; one that is computed (from the batch size) is scaled."""
    found = []
    for size, before, after in zip(sizes, old, new, strict=True):
        if before == after or (isinstance(size, int) and size == -1):
            found.append(size)
        elif isinstance(size, fx.Node):
            with at.graph.inserting_before(at):
                product = at.graph.call_function(operator.mul, (size, after))
                found.append(at.graph.call_function(operator.floordiv, (product, before)))
        else:
            found.append(after)
    return found


def _reshape(sizes: _Sizes, node: fx.Node, target: fx.Node) -> None:
    labels, after = sizes.labels(node), sizes.after(node)
    if labels is None or after is None:
        return
    if len(target.args[1]) == labels.dim():  # type: ignore[arg-type]
        shape = _new_sizes(target.args[1], labels.shape, after, target)  # type: ignore[arg-type]
        target.args = (target.args[0], shape, *target.args[2:])


def _unflatten(sizes: _Sizes, node: fx.Node, target: fx.Node) -> None:
    labels, after = sizes.labels(node), sizes.after(node)
    if labels is None or after is None:
        return
    given: Any = target.args[2]
    named = arguments(node)
    start = named["dim"] % sizes.analysis.value(named["self"]).labels.dim()
    span = slice(start, start + len(given))
    target.args = (*target.args[:2], _new_sizes(given, labels.shape[span], after[span], target))


def _create(sizes: _Sizes, node: fx.Node, target: fx.Node) -> None:
    """`zeros(sizes)` and `new_zeros(x, sizes)`."""
    labels, after = sizes.labels(node), sizes.after(node)
    if labels is None or after is None:
        return
    given: Any = arguments(target)["size"]
    _set_argument(target, "size", _new_sizes(given, labels.shape, after, target))


def _slice(sizes: _Sizes, node: fx.Node, target: fx.Node) -> None:
    named = arguments(node)
    source, dim = named["self"], named["dim"]
    labels, after = sizes.labels(source), sizes.after(source)
    if labels is None or after is None or after[dim] == labels.size(dim):
        return  # also the rows that are read of a table, whose number may be symbolic
    length = labels.size(dim)
    start, end = named["start"] or 0, length if named["end"] is None else named["end"]
    if not isinstance(start, int) or not isinstance(end, int) or named["step"] != 1:
        return
    start, end = (min(max(p + length if p < 0 else p, 0), length) for p in (start, end))
    bounds = [sizes.index_after(source, dim, index) for index in (start, end)]
    target.args = (target.args[0], dim, *bounds)
    target.kwargs = {}


def _select(sizes: _Sizes, node: fx.Node, target: fx.Node) -> None:
    source, dim, index = node.args
    labels = sizes.labels(source)
    if labels is not None and isinstance(index, int) and isinstance(dim, int) and index >= 0:
        target.args = (target.args[0], dim, sizes.index_after(source, dim, index))


def _split(sizes: _Sizes, node: fx.Node, target: fx.Node) -> None:
    """Every split becomes one with explicit sizes."""
    parts = sizes.analysis.values.get(node)
    dim = arguments(node)["dim"]
    if not isinstance(parts, tuple):
        return
    new = [sizes.decision.shape_after(part.labels)[dim] for part in parts]
    if new != [part.shape[dim] for part in parts]:
        target.target = aten.split_with_sizes.default
        target.args, target.kwargs = (target.args[0], new, dim), {}


def _groups(sizes: _Sizes, node: fx.Node, target: fx.Node) -> None:
    """The number of groups of a convolution or a group norm."""
    named = arguments(node)
    if node.target is aten.group_norm.default:
        after = sizes.after(node)
        channels = sizes.analysis.value(node).shape[1]
        kept = named["num_groups"] * (channels if after is None else after[1]) // channels
        target.args = (target.args[0], kept, *target.args[2:])
    elif named["groups"] > 1:
        axes = sizes.analysis.axis_labels.get(str(sizes.analysis.state_name(named["weight"])))
        if axes is not None:  # else the weight is computed, and all of its channels stay
            _set_argument(target, "groups", int(sizes.decision.keeps(axes[1]).any(1).sum()))


def _set_argument(node: fx.Node, name: str, value: Any) -> None:
    assert isinstance(node.target, OpOverload)
    names = [argument.name for argument in node.target._schema.arguments]
    place = names.index(name)
    if place < len(node.args):
        node.args = (*node.args[:place], value, *node.args[place + 1 :])
    else:
        node.kwargs = {**node.kwargs, name: value}


def _attention(sizes: _Sizes, node: fx.Node, target: fx.Node) -> None:
    """The default scale comes from the width of a head: make it explicit when the width changes."""
    named = arguments(node)
    query = named["query"]
    after, before = sizes.after(query), sizes.analysis.value(query).shape
    if named["scale"] is None and after is not None and after[-1] != before[-1]:
        _set_argument(target, "scale", float(before[-1]) ** -0.5)


def _mean(sizes: _Sizes, node: fx.Node, target: fx.Node) -> None:
    """A mean over units of which zeros were removed: divide by as many as there were."""
    named = arguments(node)
    after, before = sizes.after(named["self"]), sizes.analysis.value(named["self"]).shape
    if after is None or named["dim"] is None:
        return
    dims = named["dim"] if isinstance(named["dim"], list | tuple) else [named["dim"]]
    share = math.prod(after[d] / before[d] for d in dims)
    if share != 1.0:
        with target.graph.inserting_after(target):
            corrected = target.graph.call_function(aten.mul.Tensor, (target, share))
        target.replace_all_uses_with(corrected, delete_user_cb=lambda user: user is not corrected)


REWRITES: dict[Any, Rewrite] = {
    aten.view.default: _reshape,
    aten._unsafe_view.default: _reshape,
    aten.reshape.default: _reshape,
    aten.expand.default: _reshape,
    aten.unflatten.int: _unflatten,
    aten.zeros.default: _create,
    aten.ones.default: _create,
    aten.full.default: _create,
    aten.new_zeros.default: _create,
    aten.new_ones.default: _create,
    aten.new_full.default: _create,
    aten.slice.Tensor: _slice,
    aten.select.int: _select,
    aten.split.Tensor: _split,
    aten.split.sizes: _split,
    aten.split_with_sizes.default: _split,
    aten.chunk.default: _split,
    aten.group_norm.default: _groups,
    aten.mean.dim: _mean,
    aten.scaled_dot_product_attention.default: _attention,
    **dict.fromkeys(CONVOLUTIONS, _groups),
}
