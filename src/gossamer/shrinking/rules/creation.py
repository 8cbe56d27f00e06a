"""Tensors that the graph makes out of nothing: known, and without units."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload

from gossamer.shrinking.analysis import Analysis
from gossamer.shrinking.shadow import Shadow, settle

__all__ = ["CREATORS", "create"]

aten = torch.ops.aten

CREATORS: set[OpOverload] = {
    aten.zeros.default,
    aten.ones.default,
    aten.full.default,
    aten.new_zeros.default,
    aten.new_ones.default,
    aten.new_full.default,
    aten.zeros_like.default,
    aten.ones_like.default,
    aten.full_like.default,
    aten.arange.default,
    aten.arange.start,
    aten.arange.start_step,
    aten.scalar_tensor.default,
}


def create(run: Analysis, node: fx.Node) -> Any:
    """Run it: what it makes does not depend on any value."""
    shape = run.shape(node)
    dummy = torch.zeros((), dtype=node.meta["val"].dtype)

    def substitute(source: fx.Node) -> Any:
        found = run.shadows.get(source)
        return dummy.expand(found.shape) if isinstance(found, Shadow) else found

    target: Any = node.target
    args, kwargs = fx.map_arg((node.args, node.kwargs), substitute)
    kwargs = {key: value for key, value in kwargs.items() if key != "device"}
    made: Tensor = target(*args, **kwargs)
    labels = torch.zeros((), dtype=torch.long).expand(shape)
    return Shadow(labels, settle(made), torch.tensor(True).expand(shape))
