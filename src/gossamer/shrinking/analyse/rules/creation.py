"""Operations that create tensors (`zeros`, `arange`, ...): constants without units.

`zeros_like(h)` has the shape of h, so it has the units of h.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload

from gossamer.shrinking.analyse.domain import AbstractValue, compress, constant_value, unknown_value
from gossamer.shrinking.analyse.facts import Analysis

__all__ = ["CREATORS", "create"]

aten = torch.ops.aten

_LIKE: set[OpOverload] = {
    aten.zeros_like.default,
    aten.ones_like.default,
    aten.full_like.default,
    aten.empty_like.default,
}

CREATORS: set[OpOverload] = _LIKE | {
    aten.zeros.default,
    aten.ones.default,
    aten.full.default,
    aten.new_zeros.default,
    aten.new_ones.default,
    aten.new_full.default,
    aten.arange.default,
    aten.arange.start,
    aten.arange.start_step,
    aten.scalar_tensor.default,
}


def create(analysis: Analysis, node: fx.Node) -> Any:
    """Execute the operation: its result depends on shapes and numbers only."""
    source = node.args[0]
    labels = analysis.value(source).labels if node.target in _LIKE and isinstance(source, fx.Node) else None
    if node.target is aten.empty_like.default and labels is not None:
        return unknown_value(labels, node.meta["val"].dtype)
    placeholder = torch.zeros((), dtype=node.meta["val"].dtype)

    def substitute(source: fx.Node) -> Any:
        found = analysis.values.get(source)
        return placeholder.expand(found.shape) if isinstance(found, AbstractValue) else found

    target: Any = node.target
    args, kwargs = fx.map_arg((node.args, node.kwargs), substitute)
    kwargs = {key: value for key, value in kwargs.items() if key != "device"}
    created: Tensor = target(*args, **kwargs)
    return constant_value(compress(created), labels)
