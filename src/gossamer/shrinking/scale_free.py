"""Weights without a scale: a normalisation divides by whatever factor they are multiplied with.

A layer is positively homogeneous in its weight and bias: `(c W) x + c b = c (W x + b)` for c > 0. If all that reads the
output is a normalisation, the factor cancels. Its statistics decide which rows share one factor, a *block*:

    BatchNorm, InstanceNorm   each row alone
    GroupNorm                 the rows of a group of channels
    LayerNorm, RMSNorm        the whole matrix, or the rows of a head

The `eps` of the normalisation is neglected. Between layer and normalisation there may be operations that are positively
homogeneous themselves (ReLU, pooling, views). A BatchNorm that is frozen (in evaluation mode inside a model in training
mode) does not divide by the scale of its input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload

from gossamer.shrinking.analyse import Analysis
from gossamer.shrinking.analyse.dependencies import LayerCall
from gossamer.shrinking.analyse.domain import unexpand, varying_dims
from gossamer.shrinking.analyse.facts import Layer
from gossamer.shrinking.analyse.rules.layers import CONVOLUTIONS
from gossamer.shrinking.analyse.rules.views import VIEWS
from gossamer.shrinking.trace import arguments

__all__ = ["ScaleFree", "scale_free_weights"]

aten = torch.ops.aten


@dataclass(frozen=True)
class ScaleFree:
    """A weight whose blocks have no scale: row i (dimension 0) belongs to block `blocks[i]`.

    `bias` and the running statistics `means` and `variances` scale along: with c, c and c^2.
    """

    weight: str
    blocks: Tensor
    bias: str | None
    means: tuple[str, ...]
    variances: tuple[str, ...]


_HOMOGENEOUS: set[OpOverload] = {
    aten.relu.default,
    aten.leaky_relu.default,
    aten.dropout.default,
    aten.feature_dropout.default,
    aten.max_pool1d.default,
    aten.max_pool2d.default,
    aten.max_pool3d.default,
    aten.avg_pool1d.default,
    aten.avg_pool2d.default,
    aten.avg_pool3d.default,
    aten.adaptive_avg_pool1d.default,
    aten.adaptive_avg_pool2d.default,
    aten.to.dtype,
    *VIEWS,
}

_Blocks = Callable[[Analysis, fx.Node, Tensor, Tensor], Tensor | None]


def scale_free_weights(analysis: Analysis) -> tuple[ScaleFree, ...]:
    """All weights of linear layers and convolutions whose every reader is a normalisation."""
    nodes = {node.name: node for node in analysis.traced.graph.nodes}
    found = (_scale_free(analysis, layer, nodes) for layer in analysis.layers.values())
    return tuple(weight for weight in found if weight is not None)


def _scale_free(analysis: Analysis, layer: Layer, nodes: dict[str, fx.Node]) -> ScaleFree | None:
    calls = {nodes[call.node_name]: call for call in layer.calls}
    states = analysis.traced.states.items()
    users = {user for node, name in states if name == layer.weight for user in node.users}
    biases = {user for node, name in states if name == layer.bias for user in node.users}
    if users != calls.keys() or not biases <= calls.keys() or not all(_has_rows(node) for node in calls):
        return None
    norms = {node: list(_readers(node)) for node in calls}
    if any(None in readers or not readers for readers in norms.values()):
        return None
    blocks = [
        _blocks(analysis, source, norm, calls[node])
        for node, readers in norms.items()
        for source, norm in filter(None, readers)
    ]
    first = blocks[0]
    if first is None or any(other is None or not torch.equal(first, other) for other in blocks):
        return None
    named = [arguments(norm) for readers in norms.values() for _, norm in filter(None, readers)]
    statistics = [
        tuple(dict.fromkeys(name for own in named if (name := analysis.state_name(own.get(part))) is not None))
        for part in ("running_mean", "running_var")
    ]
    return ScaleFree(layer.weight, first, layer.bias, statistics[0], statistics[1])


def _has_rows(node: fx.Node) -> bool:
    """Whether dimension 0 of the weight are the outputs."""
    return node.target is aten.linear.default or (node.target in CONVOLUTIONS and "transpose" not in str(node.target))


def _readers(node: fx.Node) -> Iterator[tuple[fx.Node, fx.Node] | None]:
    """The normalisations that read a value, each with its input; None for a reader of another kind."""
    for user in node.users:
        if user.target in _HOMOGENEOUS:
            yield from _readers(user)
        elif user.target in _NORMS and user.args[0] is node:
            yield node, user
        else:
            yield None


def _blocks(analysis: Analysis, source: fx.Node, norm: fx.Node, call: LayerCall) -> Tensor | None:
    """For each output of the layer the number of its block in this normalisation; None if there are no such blocks."""
    outputs = call.outputs.flatten()
    labels = analysis.value(source).labels
    if norm.target not in _CHANNEL_NORMS and not bool(torch.isin(unexpand(labels)[0], outputs).all()):
        return None  # its statistics run over units of other layers too
    return _NORMS[norm.target](analysis, norm, labels, outputs)


def _rows(analysis: Analysis, norm: fx.Node, labels: Tensor, outputs: Tensor) -> Tensor | None:
    module = analysis.caller(norm)
    frozen = analysis.model.training and not module.training
    named = arguments(norm)
    batch_statistics = named.get("use_input_stats", True) and (not frozen or named.get("running_mean") is None)
    return torch.arange(len(outputs)) if set(varying_dims(labels)) <= {1} and batch_statistics else None


def _groups_of_rows(analysis: Analysis, norm: fx.Node, labels: Tensor, outputs: Tensor) -> Tensor | None:
    del analysis
    if not set(varying_dims(labels)) <= {1}:
        return None
    channels = unexpand(labels, keep=1)[0].flatten()
    return _numbered(channels.view(int(arguments(norm)["num_groups"]), -1), outputs)


def _matrix(analysis: Analysis, norm: fx.Node, labels: Tensor, outputs: Tensor) -> Tensor | None:
    del analysis
    inner = labels.dim() - len(arguments(norm)["normalized_shape"])
    outer = [dim for dim in varying_dims(labels) if dim < inner]
    if len(outer) > 1:
        return None
    rows = labels.movedim(outer[0], 0).flatten(1) if outer else labels.reshape(1, -1)
    return _numbered(rows, outputs)


def _numbered(rows: Tensor, outputs: Tensor) -> Tensor | None:
    """The row in which each output is found; None if one is found in several, or rows do not follow each other."""
    blocks = torch.full_like(outputs, -1)
    for number, row in enumerate(rows):
        inside = torch.isin(outputs, row)
        if bool((blocks[inside] >= 0).any()):
            return None
        blocks[inside] = number
    ordered = bool((blocks >= 0).all()) and bool((blocks.diff() >= 0).all())
    return blocks if ordered else None


_CHANNEL_NORMS: set[OpOverload] = {aten.batch_norm.default, aten.instance_norm.default}

_NORMS: dict[Any, _Blocks] = {
    aten.batch_norm.default: _rows,
    aten.instance_norm.default: _rows,
    aten.group_norm.default: _groups_of_rows,
    aten.layer_norm.default: _matrix,
    aten.rms_norm.default: _matrix,
}
