"""Linear maps: `y = W x + b` as a matrix product or as a convolution.

The weight is a stack of blocks `(g, o, i)`: g groups of o outputs by i inputs. Output units get fresh labels; a live
output reads the inputs for which its weight is not zero. An output is constant when all inputs that it reads are:

    y[o] = b[o] + sum over i of tap_sums[o, i] * c[i],    tap_sums = W summed over the taps of a kernel

With padding this holds for c = 0 only, because the border sees zeros instead of c.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload

from gossamer.layers import LayerKind
from gossamer.layers.kinds import CONVOLUTION, LINEAR, TAKES_BIAS
from gossamer.shrinking.analyse.constraints import EqualCounts
from gossamer.shrinking.analyse.dependencies import LayerCall, ParameterView
from gossamer.shrinking.analyse.domain import (
    AbstractValue,
    constants_along,
    expand_along,
    no_units,
    varying_dims,
)
from gossamer.shrinking.analyse.facts import Analysis, Layer
from gossamer.shrinking.analyse.rules.computed import RowWise, bind_rows, row_wise
from gossamer.shrinking.analyse.rules.views import bind_vector, elements, parameter_view, vector_value
from gossamer.shrinking.trace import arguments, caller_path, shape_of

__all__ = [
    "CONVOLUTIONS",
    "Weight",
    "call_layer",
    "convolution",
    "dense",
    "linear",
    "owner",
    "units_along",
]

aten = torch.ops.aten

_TRANSPOSED: set[OpOverload] = {
    aten.conv_transpose1d.default,
    aten.conv_transpose2d.input,
    aten.conv_transpose3d.input,
}

CONVOLUTIONS: set[OpOverload] = _TRANSPOSED | {
    aten.conv1d.default,
    aten.conv1d.padding,
    aten.conv2d.default,
    aten.conv2d.padding,
    aten.conv3d.default,
    aten.conv3d.padding,
}


@dataclass(frozen=True)
class Weight:
    """A weight as blocks `(g, o, i)`; `part` is empty for a whole parameter and names the view of a part of one.

    `zeros_only` says why a constant input is a constant contribution only if it is zero; empty if it always is.
    """

    name: str
    part: str
    nonzero: Tensor
    tap_sums: Tensor
    zeros_only: str = ""
    computed: bool = False


def owner(name: str) -> str:
    """The path of the module that holds a parameter."""
    return name.rpartition(".")[0]


def units_along(analysis: Analysis, value: AbstractValue, dim: int, reader: str) -> Tensor:
    """The labels along the dimension that an operation reads; units along any other dimension are pinned."""
    if any(d != dim for d in varying_dims(value.labels)):
        analysis.labels.pin(value.labels, f"{reader} reads across another dimension")
        return no_units([value.labels.size(dim)])
    return value.labels[tuple(slice(None) if d == dim else 0 for d in range(value.labels.dim()))]


def linear(analysis: Analysis, node: fx.Node) -> Any:
    """`x @ weight.T + bias`."""
    named = arguments(node)
    view = parameter_view(analysis, named["weight"])
    if view is None and (computed := row_wise(analysis, named["weight"])) is not None and computed.rows == 0:
        blocks = computed.tensor[None, :, :, None]
        dim = analysis.value(named["input"]).labels.dim() - 1
        return _computed_layer(analysis, node, computed, (blocks, False, dim), LINEAR)
    part = "" if analysis.state_name(named["weight"]) else str(named["weight"])
    return dense(analysis, node, named["input"], view, part, (1, 0), named["bias"])


def dense(
    analysis: Analysis,
    node: fx.Node,
    source: Any,
    view: ParameterView | None,
    part: str,
    dims: tuple[int, int],
    bias: Any,
    *,
    scale: float = 1,
) -> Any:
    """A product with a multiple of a matrix whose dimensions `dims` are inputs and outputs."""
    inner, outer = dims
    if view is None:
        return analysis.opaque(node, f"the weight of {node} is computed, not a parameter")
    matrix = elements(analysis, view).permute(outer, inner) * scale
    value = analysis.value(source)
    weight = Weight(view.name, part, (matrix != 0).unsqueeze(0), matrix.unsqueeze(0))
    result, call = call_layer(analysis, node, weight, bias, value, value.labels.dim() - 1, len(shape_of(node)) - 1)
    inputs, outputs = call.inputs.flatten(), call.outputs.flatten()
    analysis.bind(view, inner, inputs)
    analysis.bind(view, outer, outputs)
    for path in analysis.owners(view.name):
        analysis.count_units(path, LINEAR, inputs=inputs, outputs=outputs)
    return result


def convolution(analysis: Analysis, node: fx.Node) -> Any:
    """Plain, transposed, grouped or depthwise convolution; the groups that stay keep equally many channels."""
    named = arguments(node)
    name = analysis.state_name(named["weight"])
    transposed = node.target in _TRANSPOSED
    computed = row_wise(analysis, named["weight"]) if name is None and not transposed else None
    if (name is None and computed is None) or (computed is not None and computed.rows != 0):
        return analysis.opaque(node, f"the weight of {node} is not computed from parameters output by output")
    tensor = computed.tensor if computed is not None else analysis.tensor(str(name))
    blocks = _blocks(tensor, int(named["groups"]), transposed)
    padded = transposed or _pads(named["padding"])
    source = analysis.value(named["input"])
    channel = source.labels.dim() - (tensor.dim() - 1)  # counted from the end, since the batch may be missing
    if computed is not None:
        return _computed_layer(analysis, node, computed, (blocks, padded, channel), CONVOLUTION)
    weight = Weight(str(name), "", (blocks != 0).any(3), blocks.sum(3), _border(str(name)) if padded else "")
    result, call = call_layer(analysis, node, weight, named["bias"], source, channel, channel)
    _bind_channels(analysis, str(name), call.inputs, call.outputs, transposed)
    return result


def _computed_layer(
    analysis: Analysis, node: fx.Node, computed: RowWise, layer: tuple[Tensor, bool, int], kind: LayerKind
) -> AbstractValue:
    """A layer `(blocks, padded, input dimension)` whose weight is computed from parameters row by row.

    An input whose column is not zero everywhere enters the statistics of the rows, so it is never folded.
    """
    blocks, padded, dim = layer
    named = arguments(node)
    name = computed.source or next(iter(computed.parameters))
    zeros_only = _border(name) if padded else ""
    weight = Weight(name, str(node), (blocks != 0).any(3), blocks.sum(3), zeros_only, computed=True)
    source = analysis.value(named["input"])
    result, call = call_layer(analysis, node, weight, named["bias"], source, dim, dim)
    inputs, outputs = call.inputs, call.outputs
    bind_rows(analysis, computed, outputs.flatten())
    grouped = len(inputs) > 1
    if inputs.size(1) > 1 and (computed.source is None or grouped):
        analysis.labels.pin(inputs, f"the weight of {node} is standardised over all of its inputs")
    elif not grouped:
        columns = tuple(torch.arange(n) for n in analysis.traced.tensors[name].shape)
        analysis.bind(ParameterView(name, tuple(range(len(columns))), columns), 1, inputs.flatten())
    for path in {caller_path(node), *analysis.owners(name)}:
        analysis.count_units(path, kind, inputs=inputs.flatten(), outputs=outputs.flatten())
    if grouped:
        _constrain_groups(analysis, caller_path(node), inputs, outputs)
    return result


def _constrain_groups(analysis: Analysis, path: str, inputs: Tensor, outputs: Tensor) -> None:
    analysis.count_units(path, CONVOLUTION, parts=inputs)
    analysis.equal_counts.append(EqualCounts((inputs, outputs), f"the groups of {path} must keep equal sizes"))
    if inputs.size(1) == 1 and outputs.size(1) == 1:
        analysis.labels.unify(inputs, outputs)


def _blocks(weight: Tensor, groups: int, transposed: bool) -> Tensor:
    """The weight as groups by outputs by inputs by taps."""
    blocks = weight.reshape(groups, weight.size(0) // groups, weight.size(1), -1)
    return blocks.transpose(1, 2) if transposed else blocks


def _pads(padding: Any) -> bool:
    if isinstance(padding, str):
        return padding != "valid"
    amounts = padding if isinstance(padding, list | tuple) else [padding]
    return any(amount != 0 for amount in amounts)


def _border(name: str) -> str:
    return f"{name} pads, so the constant contributes less at the border"


def _bind_channels(analysis: Analysis, name: str, inputs: Tensor, outputs: Tensor, transposed: bool) -> None:
    """Dimension 0 of the weight counts channels over all groups, dimension 1 within each group."""
    own = analysis.axis_labels.setdefault(name, {})
    first, second = (inputs, outputs) if transposed else (outputs, inputs)
    grouped = len(inputs) > 1
    if not own:
        own[0] = analysis.labels.fresh(first.numel())
        own[1] = analysis.labels.fresh(*second.shape) if grouped else analysis.labels.fresh(second.numel())
    analysis.labels.unify(own[0], first.flatten())
    analysis.labels.unify(own[1], second if grouped else second.flatten())
    for path in analysis.owners(name):
        analysis.count_units(path, CONVOLUTION, inputs=inputs.flatten(), outputs=outputs.flatten())
    if grouped:
        _constrain_groups(analysis, owner(name), inputs, outputs)


def call_layer(
    analysis: Analysis, node: fx.Node, weight: Weight, bias: Any, source: AbstractValue, dim: int, out: int
) -> tuple[AbstractValue, LayerCall]:
    """One call of a layer that reads units along `dim` of its input and makes new ones along `out` of its result."""
    groups, outputs, inputs = weight.nonzero.shape
    incoming = units_along(analysis, source, dim, weight.name).reshape(groups, inputs)
    constants, known = (t.reshape(groups, inputs) for t in constants_along(source, dim))
    outgoing = analysis.labels.fresh(groups, outputs)
    bind_vector(analysis, bias, outgoing.flatten())
    foldable = torch.zeros_like(known) if weight.computed else known
    call = LayerCall(outgoing, incoming, constants, foldable, node.name)
    _layer(analysis, weight, bias).calls.append(call)
    value, is_known = _constant_outputs(analysis, weight, bias, constants, known)
    vectors = (outgoing.flatten(), value, is_known)
    return AbstractValue(*(expand_along(vector, shape_of(node), out) for vector in vectors)), call


def _constant_outputs(
    analysis: Analysis, weight: Weight, bias: Any, constants: Tensor, known: Tensor
) -> tuple[Tensor, Tensor]:
    """The constant of each output, and whether it is known: whether every non-zero weight meets a known input."""
    start = vector_value(analysis, bias)
    groups, outputs, _ = weight.nonzero.shape
    usable = known & (constants == 0) if weight.zeros_only else known
    varies = (weight.nonzero & ~usable.unsqueeze(1)).any(2).flatten()
    is_known = ~varies if bias is None or start is not None else torch.zeros_like(varies)
    value = torch.zeros(groups * outputs, dtype=weight.tap_sums.dtype) if start is None else start
    if bool(usable.any()):
        inputs = torch.where(usable, constants, torch.zeros_like(constants)).to(weight.tap_sums.dtype)
        value = value + torch.einsum("goi,gi->go", weight.tap_sums, inputs).flatten()
    return value, is_known


def _layer(analysis: Analysis, weight: Weight, bias: Any) -> Layer:
    """The record of a layer, made at its first call."""
    name = analysis.state_name(bias)
    key = (weight.name, name, weight.part)
    if key not in analysis.layers:
        obstacle = _obstacle(analysis, weight, bias, name)
        analysis.layers[key] = Layer(weight.name, name, weight.nonzero, weight.tap_sums, obstacle)
    return analysis.layers[key]


def _obstacle(analysis: Analysis, weight: Weight, bias: Any, name: str | None) -> str:
    """Why a non-zero constant cannot be folded into the bias of a layer; empty if it can."""
    if weight.zeros_only:
        return weight.zeros_only
    if bias is not None and name is None:
        return f"the bias of {weight.name} is computed"
    states = analysis.traced.states.items()
    users = [user for node, held in states if held == (name or weight.name) for user in node.users]
    if shared := _shared(analysis, weight.name, name, users):
        return shared
    operations = {user.target for user in users}
    if name is not None:
        return f"{name} is used elsewhere too" if len(operations) > 1 else ""
    module = analysis.model.get_submodule(owner(weight.name))
    can_have_bias = isinstance(module, TAKES_BIAS) and not weight.part and module.bias is None
    return "" if can_have_bias and len(operations) == 1 else f"{weight.name} has no bias"


def _shared(analysis: Analysis, weight: str, bias: str | None, users: list[fx.Node]) -> str:
    """Why a bias would reach other outputs than those of this weight; empty if it would not."""
    if bias is None:
        owners = {id(analysis.modules[path]) for path in analysis.owners(weight)}
        return f"{weight} is shared by layers without a bias" if len(owners) > 1 else ""
    states = analysis.traced.states
    beside = {held for user in users for node in user.all_input_nodes if (held := states.get(node))}
    return f"{bias} is used elsewhere too" if beside - {weight, bias} else ""
