"""The abstract interpreter: the table from operations to rules, and the loop over the graph.

It fails closed. An operation without a rule, or one whose rule raises, pins every unit that it reads and gives a
result about which nothing is known.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._ops import OpOverload

from gossamer.shrinking.analyse.domain import compress, constant_value
from gossamer.shrinking.analyse.facts import Analysis
from gossamer.shrinking.analyse.rules.attention import matmul, matmul_with_mask, scaled_dot_product_attention
from gossamer.shrinking.analyse.rules.cells import CELLS, recurrent_cell
from gossamer.shrinking.analyse.rules.creation import CREATORS, create
from gossamer.shrinking.analyse.rules.einsum import einsum
from gossamer.shrinking.analyse.rules.embedding import embedding, embedding_bag
from gossamer.shrinking.analyse.rules.indexing import SCATTERS, gather, index_select, scatter
from gossamer.shrinking.analyse.rules.layers import CONVOLUTIONS, convolution, linear
from gossamer.shrinking.analyse.rules.norms import (
    batch_norm,
    decomposed_batch_norm,
    group_norm,
    instance_norm,
    layer_norm,
)
from gossamer.shrinking.analyse.rules.pointwise import dropout, glu, is_pointwise, overwrite, pointwise, prelu
from gossamer.shrinking.analyse.rules.products import grouped_product
from gossamer.shrinking.analyse.rules.recurrent import RECURRENT, recurrent
from gossamer.shrinking.analyse.rules.spatial import SPATIAL, over_dims, over_space, pad
from gossamer.shrinking.analyse.rules.views import VIEWS, view
from gossamer.shrinking.trace import TracedModel

__all__ = ["RULE_FAILED", "analyse"]

aten = torch.ops.aten

RULE_FAILED = "internal error (please report this) in the rule for"
"""How the reason of units begins that stay because a rule raised."""

Rule = Callable[[Analysis, fx.Node], Any]

RULES: dict[Any, Rule] = {
    aten.linear.default: linear,
    aten.matmul.default: matmul,
    aten.mm.default: matmul,
    aten.einsum.default: einsum,
    aten.bmm.default: matmul,
    aten.addmm.default: matmul,
    aten._grouped_mm.default: grouped_product,
    aten.baddbmm.default: matmul_with_mask,
    aten.scaled_dot_product_attention.default: scaled_dot_product_attention,
    aten.embedding.default: embedding,
    aten.batch_norm.default: batch_norm,
    aten._native_batch_norm_legit_no_training.default: decomposed_batch_norm,
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
    aten.index_select.default: index_select,
    aten.glu.default: glu,
    aten.fill.Scalar: overwrite,
    aten.fill.Tensor: overwrite,
    aten.copy.default: overwrite,
    aten.embedding_bag.default: embedding_bag,
    aten.embedding_bag.padding_idx: embedding_bag,
    aten.mean.dim: over_dims,
    aten.mean.default: over_dims,
    aten.sum.dim_IntList: over_dims,
    aten.sum.default: over_dims,
    aten.amax.default: over_dims,
    aten.linalg_vector_norm.default: over_dims,
    aten.amin.default: over_dims,
    aten.softmax.int: over_dims,
    aten._softmax.default: over_dims,
    aten.log_softmax.int: over_dims,
    aten.cumsum.default: over_dims,
    aten.max.dim: over_dims,
    aten.min.dim: over_dims,
    aten.roll.default: over_dims,
    **dict.fromkeys(CREATORS, create),
    **dict.fromkeys(RECURRENT, recurrent),
    **dict.fromkeys(CELLS, recurrent_cell),
    **dict.fromkeys(CONVOLUTIONS, convolution),
    **dict.fromkeys(SCATTERS, scatter),
    **dict.fromkeys(SPATIAL, over_space),
    **dict.fromkeys(VIEWS, view),
}
"""Rules by overload, or by overload packet where all overloads follow the same one."""

RULES_BY_NAME: dict[str, Rule] = {"transformers::grouped_mm_fallback": grouped_product}
"""Rules of operations that other libraries define, which need not be there."""

_SIZES_AT: dict[Any, int] = {
    aten.view.default: 1,
    aten.reshape.default: 1,
    aten.unflatten.int: 2,
    aten.expand.default: 1,
    aten.zeros.default: 0,
    aten.ones.default: 0,
    aten.full.default: 0,
    aten.new_zeros.default: 1,
    aten.new_ones.default: 1,
    aten.new_full.default: 1,
    aten.split.Tensor: 1,
    aten.split.sizes: 1,
    aten.split_with_sizes.default: 1,
}
"""The position of the argument in which an operation takes sizes."""


def analyse(
    model: nn.Module,
    traced: TracedModel,
    *,
    training: bool = False,
    dropout: bool = True,
    rewrites_graph: bool = False,
) -> Analysis:
    """Interpret the traced model abstractly.

    Args:
        model: the model that was traced.
        traced: its graph.
        training: analyse the model in the mode in which its modules are, instead of evaluation mode.
        dropout: some dropout is active in that mode.
        rewrites_graph: the result will be a graph in which sizes and attention scales are rewritten.
    """
    analysis = Analysis(model, traced, training=training, dropout=dropout, rewrites_graph=rewrites_graph)
    with torch.no_grad():
        for node in traced.graph.nodes:
            if node.op == "placeholder":
                if node not in traced.states:
                    analysis.values[node] = _graph_input(analysis, node)
            elif node.op == "get_attr":
                analysis.values[node] = _graph_constant(analysis, node)
            elif node.op == "call_function" and _is_of_parameters(analysis, node):
                analysis.deferred[node] = _evaluate
            elif node.op == "call_function":
                analysis.values[node] = _evaluate(analysis, node)
            elif node.op == "output":
                analysis.pin_inputs(node, "it is an output of the model")
    analysis.finish()
    return analysis


def _is_of_parameters(analysis: Analysis, node: fx.Node) -> bool:
    """What is computed from parameters alone is deferred: if it becomes a weight, it needs no labels per element."""
    sources = [n for n in node.all_input_nodes if not isinstance(analysis.values.get(n), int)]
    return bool(sources) and all(n in analysis.traced.states or n in analysis.deferred for n in sources)


def _evaluate(analysis: Analysis, node: fx.Node) -> Any:
    """The abstract result of one operation."""
    sizes = _literal_sizes(node)
    if sizes:
        analysis.literal_sizes[node] = sizes
    if node.target is operator.getitem:
        source: Any = node.args[0]
        return analysis.result(source)[node.args[1]]
    if not isinstance(node.target, OpOverload) or not isinstance(node.meta.get("val"), Tensor | tuple | list):
        return _number(analysis, node)
    rule = _rule_for(node.target)
    if rule is None:
        return analysis.opaque(node, f"there is no rule for {node.target}")
    try:
        return rule(analysis, node)
    except Exception as error:  # an unforeseen case costs some units, not the whole analysis
        return analysis.opaque(node, f"{RULE_FAILED} {node.target}: {type(error).__name__}")


def _rule_for(op: OpOverload) -> Rule | None:
    rule = RULES.get(op) or RULES.get(op.overloadpacket) or RULES_BY_NAME.get(op._schema.name)
    return pointwise if rule is None and is_pointwise(op) else rule


def _number(analysis: Analysis, node: fx.Node) -> Any:
    """Sizes and arithmetic on them are executed; anything else that is not a tensor is opaque."""
    target: Any = node.target
    if target is aten.sym_size.int:
        source, dim = node.args
        assert isinstance(source, fx.Node)
        assert isinstance(dim, int)
        return analysis.value(source).shape[dim]
    if node.meta.get("val") is None:
        return None  # an assertion; nothing reads it
    operands = [analysis.values.get(n) for n in node.all_input_nodes]
    if callable(target) and all(isinstance(n, int | float | bool) for n in operands):
        return target(*analysis.numbers(node.args), **analysis.numbers(node.kwargs))
    return analysis.opaque(node, f"there is no rule for {node.target}")


def _graph_input(analysis: Analysis, node: fx.Node) -> Any:
    """An input of the model, or a tensor that the exporter lifted; in training a forward may write into the latter."""
    tensor = analysis.traced.constants.get(node)
    if tensor is None or analysis.training:
        return analysis.unknown_result(node)
    return constant_value(compress(tensor.detach().cpu()))


def _graph_constant(analysis: Analysis, node: fx.Node) -> Any:
    """A tensor that the exporter stored in the graph: constant, without units."""
    tensor = getattr(analysis.traced.program.graph_module, str(node.target), None)
    if not isinstance(tensor, Tensor):
        return analysis.unknown_result(node) if "val" in node.meta else None
    return constant_value(tensor.detach().cpu())


def _literal_sizes(node: fx.Node) -> frozenset[int]:
    """The sizes that an operation (or the split whose part this is) spells out as integers."""
    source = node.all_input_nodes[0] if node.target is operator.getitem else node
    place = _SIZES_AT.get(source.target)
    if place is None or place >= len(source.args):
        return frozenset()
    sizes = source.args[place]
    listed = sizes if isinstance(sizes, list | tuple) else [sizes]
    return frozenset(size for size in listed if isinstance(size, int) and size > 1)
