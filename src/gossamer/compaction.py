"""Take units out of a network while it trains, with everything that follows its weights."""

from __future__ import annotations

from torch import nn
from torch.optim import Optimizer

from gossamer import shrinking
from gossamer.example import Example
from gossamer.proximal import attached
from gossamer.shrinking import Plan

__all__ = ["shrink_"]


def shrink_(model: nn.Module, example: Example, *, optimizer: Optimizer | None = None) -> Plan:
    """Remove from the model, in place, the units that do nothing; training goes on as if nothing had happened.

    Parameter objects stay the same and hold smaller tensors. Gradients, the optimizer's state (momentum, Adam's
    moments, anything of a parameter's shape) and the state of regularizers attached to it are cut alike; a bias that
    has to be created joins the parameter group of its weight. Learning-rate schedulers and checkpoints go on as they
    are. If anything fails, model and optimizer are as they were.

    Args:
        model: the model in training; exactness holds for the mode in which it is, training or evaluation.
        example: what the model is called with: a tensor, a tuple of arguments, or a dict of keyword arguments.
        optimizer: the optimizer that trains it.

    Returns:
        What was done; it prints as a table.
    """
    plan = shrinking.shrink_(model, example, optimizer=optimizer)
    if optimizer is not None:
        for step in attached(optimizer):
            step.select_(plan.kept_of(model))
    return plan
