"""Set the biases of dead units to zero, an option before shrinking and during training.

A dead unit depends on no input, but its bias and the shift of its norm may still make it a non-zero constant. Such a
constant cannot be folded into a padded convolution, so the unit stays. Setting it to zero changes the outputs once, by
that constant, and makes the unit removable.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._ops import OpOverload
from torch.optim import Optimizer

from gossamer.example import Call, Example, call_with, evaluating
from gossamer.shrinking.analyse import AbstractValue, Analysis, analyse
from gossamer.shrinking.analyse.domain import constants_along, varying_dims
from gossamer.shrinking.analyse.rules.layers import CONVOLUTIONS
from gossamer.shrinking.apply.other_sizes import at_other_sizes
from gossamer.shrinking.apply.probes import IndexRanges, run
from gossamer.shrinking.trace import arguments, shape_of, trace

__all__ = ["biases_of_dead_units", "zero_dead_biases"]

aten = torch.ops.aten

_LAYERS: set[Any] = {aten.linear.default, *CONVOLUTIONS}


def zero_dead_biases(model: nn.Module, example: Example, *, optimizer: Optimizer | None = None) -> int:
    """Set bias and norm shift of every dead unit to zero, in place.

    A unit is dead if it does not depend on the input, at the sizes of the example and at others, because all of its
    ingoing weights (or those of all units before it) are zero. Outputs of the model keep their biases. The running mean
    of a dead unit becomes zero too, so that training and evaluation mode agree about it.

    Args:
        model: the model to change.
        example: what the model is called with: a tensor, a tuple of arguments, or a dict of keyword arguments.
        optimizer: the optimizer that trains it; its state for these entries (momentum, moments) is set to zero too,
            or it would move them away from zero again.

    Returns:
        How many entries changed.
    """
    call = call_with(model, example)
    found = _dead_biases(model, call)
    other = _at_other_sizes(model, call) if found else None
    dead_there = None if other is None else _dead_biases(model, other)
    changed = 0
    with torch.no_grad():
        for tensor, dead in found.items():
            if dead_there is not None:
                dead &= dead_there.get(tensor, torch.zeros_like(dead))
            changed += int((dead & (tensor != 0)).sum())
            tensor[dead] = 0
            for value in _states(optimizer, tensor):
                value[dead.to(value.device)] = 0
    return changed


def _dead_biases(model: nn.Module, call: Call) -> dict[Tensor, Tensor]:
    """The biases, norm shifts and running means of dead units, each with a mask of these entries."""
    found: dict[Tensor, Tensor] = {}
    for tensor, dead in biases_of_dead_units(analyse(model, trace(model, call))):
        found[tensor] = found.get(tensor, torch.zeros_like(dead)) | dead
    return found


def _at_other_sizes(model: nn.Module, call: Call) -> Call | None:
    """A call of other sizes: `h * torch.arange(length)` does not depend on the input if the length is one."""
    ranges = IndexRanges()
    with evaluating(model):
        with ranges:
            run(model, call)
        other = at_other_sizes(model, call, ranges)
    return None if other is None else other.call


def biases_of_dead_units(analysis: Analysis) -> Iterator[tuple[Tensor, Tensor]]:
    """The biases, norm shifts and running means that belong to dead units, each with a mask of these entries."""
    pinned = _pinned(analysis)
    for node in analysis.traced.graph.nodes:
        for name, dead in _dead_entries(analysis, node, pinned):
            tensor = analysis.traced.tensors[name]
            yield tensor, dead.to(tensor.device)


def _states(optimizer: Optimizer | None, tensor: Tensor) -> list[Tensor]:
    state = {} if optimizer is None else optimizer.state.get(tensor, {})
    return [value for value in state.values() if isinstance(value, Tensor) and value.shape == tensor.shape]


def _pinned(analysis: Analysis) -> Tensor:
    """For each label whether its class is pinned (as an output of the model, above all)."""
    classes = analysis.labels.classes()
    pinned = torch.zeros(analysis.labels.count, dtype=torch.bool)
    for labels, _ in analysis.labels.pins:
        pinned[classes[labels]] = True
    return pinned[classes]


def _dead_entries(analysis: Analysis, node: fx.Node, pinned: Tensor) -> Iterator[tuple[str, Tensor]]:
    """The vectors of a layer or batch norm that add a constant, with a mask of the entries of dead units."""
    value = analysis.values.get(node)
    if not isinstance(node.target, OpOverload) or not isinstance(value, AbstractValue):
        return
    if node.target in _LAYERS:
        named = arguments(node)
        kernel = len(shape_of(named["weight"])) - 2
        dim, source, vectors = value.labels.dim() - 1 - kernel, value, ["bias"]
    elif node.target is aten.batch_norm.default:
        named = arguments(node)
        dim, source, vectors = 1, analysis.value(named["input"]), ["bias", "running_mean"]
    else:
        return
    if varying_dims(source.labels) != (dim,):
        return
    labels = source.labels[tuple(slice(None) if d == dim else 0 for d in range(source.labels.dim()))]
    _, dead = constants_along(source, dim)
    for part in vectors:
        name = analysis.state_name(named[part])
        if name is not None:
            yield name, dead & ~pinned[labels]
