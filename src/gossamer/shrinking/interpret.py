"""Which rule an operation follows, and the run through the whole graph."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._ops import OpOverload

from gossamer.shrinking.analysis import Analysis
from gossamer.shrinking.rules.attention import einsum, matmul, scaled_dot_product_attention
from gossamer.shrinking.rules.convolution import CONVOLUTIONS, convolution
from gossamer.shrinking.rules.creation import CREATORS, create
from gossamer.shrinking.rules.embedding import embedding
from gossamer.shrinking.rules.layers import linear
from gossamer.shrinking.rules.norms import batch_norm, group_norm, instance_norm, layer_norm
from gossamer.shrinking.rules.pointwise import dropout, is_pointwise, pointwise, prelu
from gossamer.shrinking.rules.recurrent import GATES, recurrent
from gossamer.shrinking.rules.spatial import over_dims, over_space, spatial_rank
from gossamer.shrinking.rules.views import VIEWS, gather, pad, view
from gossamer.shrinking.shadow import Shadow
from gossamer.shrinking.trace import Traced

__all__ = ["TRIPPED", "analyse"]

aten = torch.ops.aten

TRIPPED = "our rule failed (please report this) for"
"""The reason of units that stay because of a defect in a rule."""

Rule = Callable[[Analysis, fx.Node], Any]

RULES: dict[OpOverload, Rule] = {
    aten.linear.default: linear,
    aten.matmul.default: matmul,
    aten.mm.default: matmul,
    aten.einsum.default: einsum,
    aten.bmm.default: matmul,
    aten.addmm.default: matmul,
    aten.scaled_dot_product_attention.default: scaled_dot_product_attention,
    aten.embedding.default: embedding,
    aten.batch_norm.default: batch_norm,
    aten.instance_norm.default: instance_norm,
    aten.group_norm.default: group_norm,
    aten.layer_norm.default: layer_norm,
    aten.rms_norm.default: layer_norm,
    aten.dropout.default: dropout,
    aten.feature_dropout.default: dropout,
    aten.alpha_dropout.default: dropout,
    aten.feature_alpha_dropout.default: dropout,
    aten.prelu.default: prelu,
    aten.constant_pad_nd.default: pad,
    aten.pad.default: pad,
    aten.index.Tensor: gather,
    aten.mean.dim: over_dims,
    aten.mean.default: over_dims,
    aten.sum.dim_IntList: over_dims,
    aten.sum.default: over_dims,
    aten.amax.default: over_dims,
    aten.amin.default: over_dims,
    aten.softmax.int: over_dims,
    aten._softmax.default: over_dims,
    aten.log_softmax.int: over_dims,
    aten.cumsum.default: over_dims,
    aten.max.dim: over_dims,
    aten.min.dim: over_dims,
    aten.roll.default: over_dims,
    **dict.fromkeys(CREATORS, create),
    **dict.fromkeys(GATES, recurrent),
    **dict.fromkeys(CONVOLUTIONS, convolution),
    **dict.fromkeys(VIEWS, view),
}


def analyse(
    model: nn.Module,
    traced: Traced,
    *,
    training: bool = False,
    rewrites_graph: bool = False,
    whole_heads: bool = False,
) -> Analysis:
    """Run the traced model on shadows.

    With `training` for the mode in which its modules now are; with `rewrites_graph` for a result in which sizes and
    scales are spelled anew; with `whole_heads` for attention that may lose heads but not parts of them.
    """
    run = Analysis(model, traced, training=training, rewrites_graph=rewrites_graph, whole_heads=whole_heads)
    with torch.no_grad():
        for node in traced.graph.nodes:
            if node.op == "placeholder":
                if node not in traced.states:
                    run.shadows[node] = run.fresh_result(node)
            elif node.op == "get_attr":
                run.shadows[node] = _constant(run, node)
            elif node.op == "call_function" and _shows_parameter(run, node):
                run.deferred[node] = _step
            elif node.op == "call_function":
                run.shadows[node] = _step(run, node)
            elif node.op == "output":
                run.opaque_output(node)
    run.finish()
    return run


def _shows_parameter(run: Analysis, node: fx.Node) -> bool:
    """A view of a parameter waits: if it becomes the weight of a layer, its elements need no labels."""
    if node.target is not operator.getitem and node.target not in VIEWS:
        return False
    sources = [n for n in node.all_input_nodes if not isinstance(run.shadows.get(n), int)]
    return bool(sources) and all(n in run.traced.states or n in run.deferred for n in sources)


def _step(run: Analysis, node: fx.Node) -> Any:
    if node.target is operator.getitem:
        source: Any = node.args[0]
        return run.result(source)[node.args[1]]
    if not isinstance(node.target, OpOverload) or not isinstance(node.meta.get("val"), Tensor | tuple | list):
        return _plain_number(run, node)
    rule = _rule(node.target)
    if rule is None:
        return run.opaque(node, f"{node.target} is not understood")
    try:
        return rule(run, node)
    except Exception as error:  # a case that nobody foresaw must cost a few units, not the whole shrink
        return run.opaque(node, f"{TRIPPED} {node.target}: {type(error).__name__}")


def _rule(op: OpOverload) -> Rule | None:
    if op in RULES:
        return RULES[op]
    if spatial_rank(op) is not None:
        return over_space
    return pointwise if is_pointwise(op) else None


def _plain_number(run: Analysis, node: fx.Node) -> Any:
    """Sizes and arithmetic on them are executed; anything else that is not a tensor is opaque."""
    target: Any = node.target
    if target is aten.sym_size.int:
        source, dim = node.args
        assert isinstance(source, fx.Node)
        assert isinstance(dim, int)
        return run.shadow(source).shape[dim]
    if node.meta.get("val") is None:
        return None  # an assertion: it gives nothing to anybody
    numbers = [run.shadows.get(n) for n in node.all_input_nodes]
    if callable(target) and all(isinstance(n, int | float | bool) for n in numbers):
        return target(*run.number(node.args), **run.number(node.kwargs))
    return run.opaque(node, f"{node.target} is not understood")


def _constant(run: Analysis, node: fx.Node) -> Any:
    """A tensor that the export put into the graph: known, and of a size that nobody can change."""
    value = getattr(run.traced.program.graph_module, str(node.target), None)
    if not isinstance(value, Tensor):
        return run.fresh_result(node) if "val" in node.meta else None
    labels = torch.zeros((), dtype=torch.long).expand(value.shape)
    return Shadow(labels, value.detach().cpu(), torch.tensor(True).expand(value.shape))
