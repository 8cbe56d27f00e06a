"""The labels of parameters and buffers that are used as plain values, not as the weight of a layer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from gossamer.shrinking.analyse.domain import Labels, expand_along

__all__ = ["labels_of_elements"]

_LARGEST_TABLE = 4096  # elements of a table of integers or flags that may belong to units
_MOST_ELEMENTS = 2**20
"""A parameter that is used as a plain value has one label per element, up to so many."""

_LAYERS: set[Any] = {
    torch.ops.aten.linear.default,
    torch.ops.aten.conv1d.default,
    torch.ops.aten.conv1d.padding,
    torch.ops.aten.conv2d.default,
    torch.ops.aten.conv2d.padding,
    torch.ops.aten.conv3d.default,
    torch.ops.aten.conv3d.padding,
}
"""Layers with the outputs of their weight along its first dimension."""


def labels_of_elements(node: fx.Node, tensor: Tensor, labels: Labels) -> Tensor | None:
    """One label per element; one per output of a weight that is computed from, one per column of a large table.

    None for a tensor without units: a number, or a large table of integers or flags such as a causal mask.
    """
    shape = tensor.shape
    if tensor.dim() == 0 or (not tensor.is_floating_point() and tensor.numel() > _LARGEST_TABLE):
        return None
    if len(shape) > 1 and _becomes_weight(node):
        return expand_along(labels.fresh(shape[0]), shape, 0)
    if shape.numel() > _MOST_ELEMENTS:
        return expand_along(labels.fresh(shape[-1]), shape, len(shape) - 1)
    return labels.fresh(*shape)


def _becomes_weight(node: fx.Node) -> bool:
    """Whether a layer has a weight that is computed from this parameter (weight norm, a standardised weight)."""
    found, waiting = {node}, [node]
    while waiting:
        for user in waiting.pop().users:
            if user.target in _LAYERS:
                if user.args[1] in found:
                    return True
            elif user not in found:
                found.add(user)
                waiting.append(user)
    return False
