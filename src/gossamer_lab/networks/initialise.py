"""How every network of the paper starts."""

from __future__ import annotations

import torch
from torch import nn

__all__ = ["xavier_"]


def xavier_(model: nn.Module, generator: torch.Generator | None = None) -> None:
    """Draw the weights of all linear and convolution layers by Xavier's uniform rule; biases start at zero.

    The drawing is by ``generator`` alone, so one seed means one network whatever else has used random numbers.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d):
            nn.init.xavier_uniform_(module.weight, generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
