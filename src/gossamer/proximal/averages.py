"""Zeros in averaged weights.

An exponential moving average (EMA), SWA or Polyak average of a weight keeps a remainder of its values from before it
became zero. `copy_zeros` sets these weights to zero.
"""

from __future__ import annotations

import torch
from torch import nn

from gossamer.errors import GossamerError
from gossamer.layers import find_weights, is_parameter, original_module

__all__ = ["copy_zeros"]


@torch.no_grad()
def copy_zeros(averaged: nn.Module, model: nn.Module) -> int:
    """Set weights of an averaged model to zero where the model has zeros; return how many were changed.

    Call it before the average is evaluated or saved, after `averaged.update_parameters(model)`. It acts on the
    weights of layers that regularizers act on; biases and normalisation layers are not changed.

    Args:
        averaged: a `torch.optim.swa_utils.AveragedModel` of the model, or a module with the same weights.
        model: the trained model.

    Raises:
        GossamerError: If a weight of the model is missing in `averaged` or has another shape. Nothing is changed then.
    """
    model, averaged = original_module(model), original_module(averaged)
    theirs = dict(averaged.named_parameters())
    weights = [weight for weight in find_weights(model) if is_parameter(weight)]
    prefix = "" if any(weight.name in theirs for weight in weights) else "module."  # of AveragedModel
    pairs = []
    for weight in weights:
        average = theirs.get(prefix + weight.name)
        if average is None or average.shape != weight.parameter.shape:
            received = "no such weight" if average is None else f"the shape {tuple(average.shape)}"
            raise GossamerError(
                f"The model has `{weight.name}` of shape {tuple(weight.parameter.shape)}; the averaged model has "
                f"{received}. Pass an average of the same model. After `shrink_`, start a new average."
            )
        pairs.append((average, weight.parameter == 0))
    changed = 0
    for average, zero in pairs:
        zero = zero.to(average.device)
        changed += int((zero & (average != 0)).sum())
        average.masked_fill_(zero, 0.0)
    return changed
