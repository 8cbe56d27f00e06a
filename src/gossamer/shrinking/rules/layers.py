"""What all layers have in common: inputs are read by weight, outputs are new units, constants travel through."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from gossamer.shrinking.analysis import Analysis, ParameterView
from gossamer.shrinking.reading import Layer, Use
from gossamer.shrinking.rules.parameters import bind_vector, parameter_view, vector_value
from gossamer.shrinking.shadow import Shadow, spread, varying, vector_along

__all__ = ["Weight", "layer", "linear", "matrix_product", "units_along"]

aten = torch.ops.aten

_TAKES_NEW_BIAS = (
    nn.Linear,
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
)


@dataclass(frozen=True)
class Weight:
    """A weight as blocks `(g, o, i)`: whether it is non-zero anywhere, and what it sums to over its taps.

    `part` is empty for a whole parameter, and names the view for a part of one.
    """

    name: str
    part: str
    nonzero: Tensor
    strength: Tensor
    padded: bool


def units_along(run: Analysis, shadow: Shadow, dim: int, what: str) -> Tensor:
    """The labels along the dimension that a layer reads; units that lie along another dimension stay."""
    if any(d != dim for d in varying(shadow.labels)):
        run.labels.pin(shadow.labels, f"{what} works across another dimension of it")
        return torch.zeros(shadow.labels.size(dim), dtype=torch.long)
    first = [slice(None) if d == dim else 0 for d in range(shadow.labels.dim())]
    return shadow.labels[tuple(first)]


def layer(run: Analysis, node: fx.Node, weight: Weight, bias: Any, source: Shadow, dim: int, out: int) -> Shadow:
    """A call of a layer that reads units along `dim` of its input and makes new ones along `out`."""
    groups, outputs, inputs = weight.nonzero.shape
    incoming = units_along(run, source, dim, weight.name).reshape(groups, inputs)
    constants, known = (t.reshape(groups, inputs) for t in vector_along(source, dim))
    outgoing = run.labels.fresh(groups, outputs)
    bind_vector(run, bias, outgoing.flatten())
    record = _record(run, node, weight, bias)
    record.uses.append(Use(outgoing, incoming, constants, known, node.name))
    value, sure = _through(run, weight, bias, constants, known)
    shape = run.shape(node)
    return Shadow(spread(outgoing.flatten(), shape, out), spread(value, shape, out), spread(sure, shape, out))


def _record(run: Analysis, node: fx.Node, weight: Weight, bias: Any) -> Layer:
    name = run.state(bias)
    key = (weight.name, name, weight.part)
    if key not in run.layers:
        obstacle = _obstacle(run, weight, bias, name)
        run.layers[key] = Layer(weight.name, name, weight.nonzero, weight.strength, not obstacle, obstacle)
    return run.layers[key]


def _obstacle(run: Analysis, weight: Weight, bias: Any, name: str | None) -> str:
    """Why a non-zero constant cannot go into the bias of a layer; empty if it can."""
    if weight.padded:
        return f"{weight.name} pads, so a non-zero constant is not the same at its border"
    if bias is not None and name is None:
        return f"the bias beside {weight.name} is computed"
    users = [n for state, held in run.traced.states.items() if held == (name or weight.name) for n in state.users]
    calls = {n.target for n in users}
    shared = _other_users(run, weight.name, name, users)
    if shared:
        return shared
    if name is None:
        owner = run.model.get_submodule(run.owner(weight.name))
        own = isinstance(owner, _TAKES_NEW_BIAS) and not weight.part and owner.bias is None
        return "" if own and len(calls) == 1 else f"there is no bias beside {weight.name}"
    if len(calls) > 1:
        return f"{name} is used elsewhere too"
    return ""


def _other_users(run: Analysis, weight: str, bias: str | None, users: list[fx.Node]) -> str:
    """Why a bias would reach other outputs than those of this weight; empty if it would not."""
    if bias is None:
        tensor = run.traced.tensors[weight]
        owners = [m for m in run.model.modules() if any(own is tensor for own in m._parameters.values())]
        return f"{weight} is shared by layers, and there is no bias beside it" if len(owners) > 1 else ""
    beside = {held for user in users for node in user.all_input_nodes if (held := run.traced.states.get(node))}
    return f"{bias} is used elsewhere too" if beside - {weight, bias} else ""


def _through(run: Analysis, weight: Weight, bias: Any, constants: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    """The constants that come out: of outputs all of whose non-zero weights meet constants."""
    start = vector_value(run, bias)
    groups, outputs, _ = weight.nonzero.shape
    usable = known & (constants == 0) if weight.padded else known
    doubtful = (weight.nonzero & ~usable.unsqueeze(1)).any(2).flatten()
    sure = ~doubtful if bias is None or start is not None else torch.zeros_like(doubtful)
    value = torch.zeros(groups * outputs, dtype=weight.strength.dtype) if start is None else start
    if bool(usable.any()):
        steady = torch.where(usable, constants, torch.zeros_like(constants)).to(weight.strength.dtype)
        value = value + torch.einsum("goi,gi->go", weight.strength, steady).flatten()
    return value, sure


def linear(run: Analysis, node: fx.Node) -> Any:
    """`x @ weight.T + bias`."""
    named = run.arguments(node)
    view = parameter_view(run, named["weight"])
    part = "" if run.state(named["weight"]) else str(named["weight"])
    return _dense(run, node, named["input"], view, part, (1, 0), named["bias"])


def matrix_product(run: Analysis, node: fx.Node) -> Any:
    """`x @ weight` or `bias + x @ weight` with a parameter; None if neither side is one."""
    named = run.arguments(node)
    left = named.get("mat1", named.get("self"))
    right = named.get("mat2", named.get("other"))
    bias = named["self"] if node.target is aten.addmm.default else None
    view = parameter_view(run, right)
    if view is None or len(view.dims) != 2 or run.state(left) is not None:
        return None
    part = "" if node.target is aten.addmm.default and run.state(right) else str(right)
    return _dense(run, node, left, view, part, (0, 1), bias)


def _dense(
    run: Analysis,
    node: fx.Node,
    source: Any,
    view: ParameterView | None,
    part: str,
    dims: tuple[int, int],
    bias: Any,
) -> Any:
    """A matrix whose first dimension in `dims` is read and whose second is new."""
    inner, outer = dims
    if view is None:
        return run.opaque(node, f"the weight of {node} is computed, not a parameter")
    matrix = _shown(run, view, inner, outer)
    shadow = run.shadow(source)
    weight = Weight(view.name, part, (matrix != 0).unsqueeze(0), matrix.unsqueeze(0), padded=False)
    result = layer(run, node, weight, bias, shadow, shadow.labels.dim() - 1, len(run.shape(node)) - 1)
    use = run.layers[view.name, run.state(bias), part].uses[-1]
    run.bind(view, inner, use.inputs.flatten())
    run.bind(view, outer, use.outputs.flatten())
    owner = run.owner(view.name)
    run.note(owner, "in_features", use.inputs.flatten())
    run.note(owner, "out_features", use.outputs.flatten())
    return result


def _shown(run: Analysis, view: ParameterView, inner: int, outer: int) -> Tensor:
    """The elements of a parameter that a view shows, as outputs by inputs."""
    tensor = run.tensor(view.name)
    for dim, index in zip(view.dims, view.index, strict=True):
        if index.numel() != tensor.size(dim) or not torch.equal(index, torch.arange(tensor.size(dim))):
            tensor = tensor.index_select(dim, index)
    order = [view.dims[outer], view.dims[inner]]
    rest = [d for d in range(tensor.dim()) if d not in order]
    return tensor.permute(*order, *rest).flatten(1)
