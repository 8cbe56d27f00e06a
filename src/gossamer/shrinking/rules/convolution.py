"""Convolutions, plain, transposed, grouped and depthwise."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload

from gossamer.shrinking.analysis import Analysis
from gossamer.shrinking.reading import Uniform
from gossamer.shrinking.rules.layers import Weight, layer

__all__ = ["CONVOLUTIONS", "TRANSPOSED", "convolution"]

aten = torch.ops.aten

TRANSPOSED: set[OpOverload] = {
    aten.conv_transpose1d.default,
    aten.conv_transpose2d.input,
    aten.conv_transpose3d.input,
}
CONVOLUTIONS: set[OpOverload] = TRANSPOSED | {
    aten.conv1d.default,
    aten.conv1d.padding,
    aten.conv2d.default,
    aten.conv2d.padding,
    aten.conv3d.default,
    aten.conv3d.padding,
}


def convolution(run: Analysis, node: fx.Node) -> Any:
    """Input channels are read, output channels are new; groups that stay must keep equal numbers."""
    named = run.arguments(node)
    name = run.state(named["weight"])
    if name is None:
        return run.opaque(node, f"the weight of {node} is computed, not a parameter")
    groups = int(named["groups"])
    transposed = node.target in TRANSPOSED
    blocks = _blocks(run.tensor(name), groups, transposed)
    padded = transposed or _pads(named["padding"])
    weight = Weight(name, "", (blocks != 0).any(3), blocks.sum(3), padded)
    source = run.shadow(named["input"])
    channel = source.labels.dim() - blocks_rank(run.tensor(name))
    result = layer(run, node, weight, named["bias"], source, channel, channel)
    use = run.layers[name, run.state(named["bias"]), ""].uses[-1]
    _bind_channels(run, name, use.inputs, use.outputs, transposed)
    return result


def blocks_rank(weight: Tensor) -> int:
    """How many dimensions from the end the channels of an input are: one more than there are of space."""
    return weight.dim() - 1


def _blocks(weight: Tensor, groups: int, transposed: bool) -> Tensor:
    """The weight as groups by outputs by inputs by taps."""
    blocks = weight.reshape(groups, weight.size(0) // groups, weight.size(1), -1)
    return blocks.transpose(1, 2) if transposed else blocks


def _pads(padding: Any) -> bool:
    if isinstance(padding, str):
        return padding != "valid"
    amounts = padding if isinstance(padding, list | tuple) else [padding]
    return any(amount != 0 for amount in amounts)


def _bind_channels(run: Analysis, name: str, inputs: Tensor, outputs: Tensor, transposed: bool) -> None:
    """Dimension 0 of a weight counts channels over all groups, dimension 1 within each group."""
    own = run.axes.setdefault(name, {})
    first, second = (inputs, outputs) if transposed else (outputs, inputs)
    grouped = len(inputs) > 1
    if not own:
        own[0] = run.labels.fresh(first.numel())
        own[1] = run.labels.fresh(*second.shape) if grouped else run.labels.fresh(second.numel())
    run.labels.tie(own[0], first.flatten())
    run.labels.tie(own[1], second if grouped else second.flatten())
    owner = run.owner(name)
    run.note(owner, "in_channels", inputs.flatten())
    run.note(owner, "out_channels", outputs.flatten())
    if grouped:
        run.note(owner, "groups", inputs)
        run.uniforms.append(Uniform((inputs, outputs), f"the groups of {name} must stay equally large"))
        if inputs.size(1) == 1 and outputs.size(1) == 1:
            run.labels.tie(inputs, outputs)
