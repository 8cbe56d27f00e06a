"""Graph form: the exported graph itself made small, for models whose forward has sizes written in."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._ops import OpOverload

from gossamer.shrinking.analysis import Analysis
from gossamer.shrinking.cuts import take
from gossamer.shrinking.plans import Fold, Plan
from gossamer.shrinking.rules.convolution import CONVOLUTIONS, TRANSPOSED
from gossamer.shrinking.shadow import Shadow, varying
from gossamer.shrinking.solve import Decision
from gossamer.shrinking.written import new_shape

__all__ = ["smaller_graph"]

aten = torch.ops.aten


def smaller_graph(run: Analysis, plan: Plan, decision: Decision) -> fx.GraphModule:
    """A plain GraphModule with small weights, in which every size that is spelled out fits them."""
    unlifted = run.traced.program.module()
    graph = unlifted.graph
    for node in list(graph.nodes):
        if node.op == "call_module" and node.target == "_guards_fn":
            graph.erase_node(node)
    module = fx.GraphModule(unlifted, graph, class_name=type(run.model).__name__)
    _install(module, run, plan)
    by_name = {node.name: node for node in module.graph.nodes}
    sizes = _Sizes(run, decision)
    for node in run.traced.graph.nodes:
        rewrite = REWRITES.get(node.target)
        if rewrite is not None and node.name in by_name:
            rewrite(sizes, node, by_name[node.name])
    for fold in plan.folds:
        if fold.bias is None:
            _connect_bias(module, run, fold, by_name)
    module.graph.lint()
    module.recompile()
    return module


def _install(module: fx.GraphModule, run: Analysis, plan: Plan) -> None:
    """Give the graph tensors of its own: cut where the plan cuts, with the folded constants added."""
    made: dict[int, Tensor] = {}
    amounts = {fold.bias: fold.amount for fold in plan.folds if fold.bias is not None}
    canonical = {id(tensor): name for name, tensor in run.traced.tensors.items()}
    for owner in module.modules():
        stores: tuple[dict[str, Any], ...] = (owner._parameters, owner._buffers)
        for store in stores:
            for key, tensor in list(store.items()):
                if tensor is None:
                    continue
                if id(tensor) not in made:
                    name = canonical.get(id(tensor), "")
                    made[id(tensor)] = _own(tensor, plan.kept.get(name, {}), amounts.get(name))
                store[key] = made[id(tensor)]


def _own(tensor: Tensor, cuts: Any, amount: Tensor | None) -> Tensor:
    part = take(tensor.detach(), cuts).clone(memory_format=torch.contiguous_format)
    if amount is not None:
        part += amount.to(part)
    return nn.Parameter(part, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else part


def _connect_bias(module: fx.GraphModule, run: Analysis, fold: Fold, by_name: dict[str, fx.Node]) -> None:
    """A new bias, as a parameter beside the weight and as an input of every call of the layer."""
    path = fold.weight.rpartition(".")[0]
    owner = module.get_submodule(path)
    weight = owner.get_parameter(fold.weight.rpartition(".")[2])
    owner.register_parameter("bias", nn.Parameter(fold.amount.to(weight.detach()), weight.requires_grad))
    for use in run.layers[fold.weight, None, ""].uses:
        node = by_name[use.node_name]
        with module.graph.inserting_before(node):
            bias = module.graph.get_attr(f"{path}.bias" if path else "bias")
        node.args = (*node.args[:2], bias, *node.args[3:])


class _Sizes:
    """Shapes and positions before and after, for the nodes of the analysed graph."""

    def __init__(self, run: Analysis, decision: Decision) -> None:
        self.run = run
        self.decision = decision

    def labels(self, node: Any) -> Tensor | None:
        found = self.run.shadows.get(node)
        return found.labels if isinstance(found, Shadow) else None

    def after(self, node: Any) -> tuple[int, ...] | None:
        labels = self.labels(node)
        return None if labels is None else new_shape(labels, self.decision)

    def before_index(self, node: Any, dim: int, place: int) -> int:
        """How many of the first `place` positions along a dimension stay."""
        labels = self.labels(node)
        if labels is None or dim % labels.dim() not in varying(labels):
            return place
        dims = varying(labels)
        alive = self.decision.lives(labels[tuple(slice(None) if d in dims else 0 for d in range(labels.dim()))])
        alive = alive.movedim(dims.index(dim % labels.dim()), -1)
        rows = alive.reshape(-1, alive.size(-1))
        rows = rows[rows.any(1)]
        return int(rows[:, :place].sum(1).max())


Rewrite = Callable[[_Sizes, fx.Node, fx.Node], None]


def _respell(sizes: Sequence[Any], old: Sequence[int], new: Sequence[int], at: fx.Node) -> list[Any]:
    """Spelled-out sizes for the new shape; one that is computed from the batch is scaled along."""
    spelled = []
    for size, before, after in zip(sizes, old, new, strict=True):
        if before == after or (isinstance(size, int) and size == -1):
            spelled.append(size)
        elif isinstance(size, fx.Node):
            with at.graph.inserting_before(at):
                times = at.graph.call_function(operator.mul, (size, after))
                spelled.append(at.graph.call_function(operator.floordiv, (times, before)))
        else:
            spelled.append(after)
    return spelled


def _reshape(sizes: _Sizes, node: fx.Node, target: fx.Node) -> None:
    labels, after = sizes.labels(node), sizes.after(node)
    if labels is None or after is None:
        return
    if len(target.args[1]) == labels.dim():  # type: ignore[arg-type]
        spelled = _respell(target.args[1], labels.shape, after, target)  # type: ignore[arg-type]
        target.args = (target.args[0], spelled, *target.args[2:])


def _unflatten(sizes: _Sizes, node: fx.Node, target: fx.Node) -> None:
    labels, after = sizes.labels(node), sizes.after(node)
    if labels is None or after is None:
        return
    spelled: Any = target.args[2]
    named = sizes.run.arguments(node)
    start = named["dim"] % sizes.run.shadow(named["self"]).labels.dim()
    span = slice(start, start + len(spelled))
    target.args = (*target.args[:2], _respell(spelled, labels.shape[span], after[span], target))


def _create(sizes: _Sizes, node: fx.Node, target: fx.Node) -> None:
    labels, after = sizes.labels(node), sizes.after(node)
    if labels is None or after is None:
        return
    target.args = (_respell(target.args[0], labels.shape, after, target), *target.args[1:])  # type: ignore[arg-type]


def _slice(sizes: _Sizes, node: fx.Node, target: fx.Node) -> None:
    named = sizes.run.arguments(node)
    source, dim = named["self"], named["dim"]
    labels = sizes.labels(source)
    if labels is None or dim % labels.dim() not in varying(labels):
        return
    length = labels.size(dim)
    start, end = named["start"] or 0, length if named["end"] is None else named["end"]
    if not isinstance(start, int) or not isinstance(end, int) or named["step"] != 1:
        return
    start, end = (min(max(p + length if p < 0 else p, 0), length) for p in (start, end))
    places = [sizes.before_index(source, dim, place) for place in (start, end)]
    target.args = (target.args[0], dim, *places)
    target.kwargs = {}


def _select(sizes: _Sizes, node: fx.Node, target: fx.Node) -> None:
    source, dim, place = node.args
    labels = sizes.labels(source)
    if labels is not None and isinstance(place, int) and isinstance(dim, int) and place >= 0:
        target.args = (target.args[0], dim, sizes.before_index(source, dim, place))


def _split(sizes: _Sizes, node: fx.Node, target: fx.Node) -> None:
    """Every split becomes one with its sizes spelled out."""
    parts = sizes.run.shadows.get(node)
    dim = sizes.run.arguments(node)["dim"]
    if not isinstance(parts, tuple):
        return
    new = [new_shape(part.labels, sizes.decision)[dim] for part in parts]
    if new != [part.shape[dim] for part in parts]:
        target.target = aten.split_with_sizes.default
        target.args, target.kwargs = (target.args[0], new, dim), {}


def _groups(sizes: _Sizes, node: fx.Node, target: fx.Node) -> None:
    """Convolutions and group norms say how many groups they have."""
    named = sizes.run.arguments(node)
    if node.target is aten.group_norm.default:
        after = sizes.after(node)
        channels = sizes.run.shadow(node).shape[1]
        kept = named["num_groups"] * (channels if after is None else after[1]) // channels
        target.args = (target.args[0], kept, *target.args[2:])
    elif named["groups"] > 1:
        name = sizes.run.state(named["weight"])
        axes = sizes.run.axes[str(name)]
        kept = int(sizes.decision.lives(axes[1]).any(1).sum())
        _set_argument(target, "groups", kept)


def _set_argument(node: fx.Node, name: str, value: Any) -> None:
    assert isinstance(node.target, OpOverload)
    names = [argument.name for argument in node.target._schema.arguments]
    place = names.index(name)
    if place < len(node.args):
        node.args = (*node.args[:place], value, *node.args[place + 1 :])
    else:
        node.kwargs = {**node.kwargs, name: value}


def _attention(sizes: _Sizes, node: fx.Node, target: fx.Node) -> None:
    """The default scale comes from the width of a head: spell it out when that changes."""
    named = sizes.run.arguments(node)
    query = named["query"]
    after, before = sizes.after(query), sizes.run.shadow(query).shape
    if named["scale"] is None and after is not None and after[-1] != before[-1]:
        _set_argument(target, "scale", float(before[-1]) ** -0.5)


REWRITES: dict[Any, Rewrite] = {
    aten.view.default: _reshape,
    aten._unsafe_view.default: _reshape,
    aten.reshape.default: _reshape,
    aten.expand.default: _reshape,
    aten.unflatten.int: _unflatten,
    aten.zeros.default: _create,
    aten.ones.default: _create,
    aten.full.default: _create,
    aten.slice.Tensor: _slice,
    aten.select.int: _select,
    aten.split.Tensor: _split,
    aten.split.sizes: _split,
    aten.split_with_sizes.default: _split,
    aten.chunk.default: _split,
    aten.group_norm.default: _groups,
    aten.scaled_dot_product_attention.default: _attention,
    **dict.fromkeys(CONVOLUTIONS | TRANSPOSED, _groups),
}
