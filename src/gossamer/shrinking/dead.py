"""An option for training: when a unit dies, its bias and the shift of its norm go to zero with it.

A dead unit that still sends a constant cannot leave a network through a padded convolution. Setting the constant to
zero changes the outputs once, by that constant, and lets the unit go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._ops import OpOverload
from torch.optim import Optimizer

from gossamer.example import Example, call_with
from gossamer.shrinking.analysis import Analysis
from gossamer.shrinking.interpret import analyse
from gossamer.shrinking.rules.convolution import CONVOLUTIONS
from gossamer.shrinking.shadow import Shadow, varying, vector_along
from gossamer.shrinking.trace import trace

__all__ = ["zero_dead_biases"]

aten = torch.ops.aten

_LAYERS: set[Any] = {aten.linear.default, *CONVOLUTIONS}


def zero_dead_biases(model: nn.Module, example: Example, *, optimizer: Optimizer | None = None) -> int:
    """Set bias and norm shift of every dead unit to zero, in place; returns how many numbers changed.

    Dead is a unit that no longer depends on the input, because all of its ingoing weights (or those of all units
    before it) are zero. Outputs of the model keep their biases. The running mean of a dead unit becomes zero too, so
    that training and evaluation agree about it. With an `optimizer`, what it remembers of these numbers (momentum,
    moments) is forgotten too, or it would move them on.
    """
    run = analyse(model, trace(model, call_with(model, example)))
    fixed = _pinned(run)
    changed = 0
    with torch.no_grad():
        for node in run.traced.graph.nodes:
            for name, dead in _dead_entries(run, node, fixed):
                tensor = run.traced.tensors[name]
                entries = dead.to(tensor.device) & (tensor != 0)
                changed += int(entries.sum())
                tensor[entries] = 0
                for value in _states(optimizer, tensor):
                    value[dead.to(value.device)] = 0
    return changed


def _states(optimizer: Optimizer | None, tensor: Tensor) -> list[Tensor]:
    held = {} if optimizer is None else optimizer.state.get(tensor, {})
    return [value for value in held.values() if isinstance(value, Tensor) and value.shape == tensor.shape]


def _pinned(run: Analysis) -> Tensor:
    """For each label whether its class must stay anyway (outputs of the model above all)."""
    classes = run.labels.classes()
    pinned = torch.zeros(run.labels.count, dtype=torch.bool)
    for labels, _ in run.labels.pins:
        pinned[classes[labels]] = True
    return pinned[classes]


def _dead_entries(run: Analysis, node: fx.Node, fixed: Tensor) -> Iterator[tuple[str, Tensor]]:
    """The vectors of a layer or norm that add a constant, with the entries of units that are dead."""
    shadow = run.shadows.get(node)
    if not isinstance(node.target, OpOverload) or not isinstance(shadow, Shadow):
        return
    named = run.arguments(node)
    if node.target in _LAYERS:
        dim = shadow.labels.dim() - (1 if node.target is aten.linear.default else len(run.shape(named["weight"])) - 1)
        source, vectors = shadow, ["bias"]
    elif node.target is aten.batch_norm.default:
        dim, source, vectors = 1, run.shadow(named["input"]), ["bias", "running_mean"]
    else:
        return
    if varying(source.labels) != (dim,):
        return
    labels = source.labels[tuple(slice(None) if d == dim else 0 for d in range(source.labels.dim()))]
    _, dead = vector_along(source, dim)
    for part in vectors:
        name = run.state(named[part])
        if name is not None:
            yield name, dead & ~fixed[labels]
