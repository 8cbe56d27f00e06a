"""Initialisation of the networks."""

from __future__ import annotations

import torch
from torch import nn

__all__ = ["xavier_"]


def xavier_(model: nn.Module, generator: torch.Generator | None = None) -> None:
    """Initialise linear and convolution layers: Xavier uniform weights, zero biases.

    Only `generator` is used, so a seed determines the network regardless of torch's default generator.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d):
            nn.init.xavier_uniform_(module.weight, generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
