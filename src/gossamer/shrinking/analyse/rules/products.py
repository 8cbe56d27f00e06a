"""Products with a parameter that are no calls of a layer: `x @ weight`, `einsum`, and those of grouped experts."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx, nn

from gossamer.layers.kinds import LINEAR
from gossamer.shrinking.analyse.constraints import Multiple
from gossamer.shrinking.analyse.dependencies import ParameterView
from gossamer.shrinking.analyse.domain import NO_UNIT, varying_dims
from gossamer.shrinking.analyse.facts import Analysis
from gossamer.shrinking.analyse.rules.layers import Weight, call_layer, dense, units_along
from gossamer.shrinking.analyse.rules.views import elements, in_step, parameter_view
from gossamer.shrinking.trace import arguments

__all__ = ["contraction", "grouped_product", "matrix_product"]

aten = torch.ops.aten

_GROUPED_ALIGNMENT = 16  # bytes, of each row of the operands of a grouped matrix product


def matrix_product(analysis: Analysis, node: fx.Node) -> Any:
    """`x @ weight` or `bias + x @ weight` where the weight is a parameter; None if it is not."""
    named = arguments(node)
    left = named.get("mat1", named.get("self"))
    right = named.get("mat2", named.get("other"))
    bias = named["self"] if node.target is aten.addmm.default else None
    view = parameter_view(analysis, right)
    if view is None or len(view.dims) != 2 or analysis.state_name(left) is not None or named.get("beta", 1) != 1:
        return None
    part = "" if node.target is aten.addmm.default and analysis.state_name(right) else str(right)
    return dense(analysis, node, left, view, part, (0, 1), bias, scale=named.get("alpha", 1))


def contraction(analysis: Analysis, node: fx.Node, source: Any, weight: Any, words: tuple[str, str, str]) -> Any:
    """`einsum("source,weight->result")` with a parameter of two or more dimensions; None if it is not like a layer.

    Units are read along one index that is summed over, and made along one new index. The other indices of the weight
    (the dimensions of a head, the experts of a mixture) stay as they are, so the units are the same in all of them.
    """
    own, of_weight, target = words
    view = parameter_view(analysis, weight)
    if view is None or not _is_whole(analysis, view) or any(c not in target + of_weight for c in own):
        return None
    summed = [c for c in of_weight if c in own and c not in target]
    made = [c for c in of_weight if c in target and c not in own]
    value, tensor = analysis.value(source), elements(analysis, view)
    varying = [own[d] for d in varying_dims(value.labels)]
    if not summed or not made or any(c not in of_weight for c in varying):
        return None
    inner = of_weight.index(next((c for c in summed if c in varying), summed[0]))
    outer = max(
        (of_weight.index(c) for c in made), key=lambda d: int((tensor.movedim(d, 0).flatten(1) == 0).all(1).sum())
    )
    blocks = tensor.movedim((outer, inner), (0, 1)).reshape(tensor.size(outer), tensor.size(inner), -1)
    for c in varying:
        value = value if c == of_weight[inner] else in_step(analysis, value, own.index(c))
    why = f"{view.name} has other indices than those of its inputs and outputs" if tensor.dim() > 2 else ""
    layer = Weight(view.name, str(node), (blocks != 0).any(2)[None], blocks.sum(2)[None], why)
    dims = own.index(of_weight[inner]), target.index(of_weight[outer])
    result, call = call_layer(analysis, node, layer, None, value, *dims)
    inputs, outputs = call.inputs.flatten(), call.outputs.flatten()
    analysis.bind(view, inner, inputs)
    analysis.bind(view, outer, outputs)
    for path in analysis.owners(view.name):  # a linear layer has outputs by inputs
        if view.dims[outer] == 0:
            analysis.count_units(path, LINEAR, inputs=inputs, outputs=outputs)
    return result


def _is_whole(analysis: Analysis, view: ParameterView) -> bool:
    tensor = analysis.traced.tensors[view.name]
    return isinstance(tensor, nn.Parameter) and all(
        index.numel() == tensor.size(dim) for dim, index in zip(view.dims, view.index, strict=True)
    )


def grouped_product(analysis: Analysis, node: fx.Node) -> Any:
    """Rows of the input, each times the matrix of its expert: `weight` has experts by inputs by outputs."""
    source, weight, ends = node.args[:3]
    found = contraction(analysis, node, source, weight, ("nk", "eko", "no"))
    if found is None:
        return analysis.opaque(node, f"the weight of {node} is computed, not a parameter")
    analysis.labels.pin(analysis.value(ends).labels, "it is an index")  # type: ignore[arg-type]
    factor = max(1, _GROUPED_ALIGNMENT // found.constant.element_size())
    for value in (analysis.value(source), found):  # type: ignore[arg-type]
        labels = units_along(analysis, value, 1, str(node))
        reason = f"{node.target} takes multiples of {factor} units"
        analysis.multiples.append(Multiple(labels[labels != NO_UNIT], factor, reason))
    return found
