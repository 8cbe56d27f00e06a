"""Network for DIGITS: one convolution, two fully connected layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu

from gossamer_lab.networks.initialise import xavier_
from gossamer_lab.networks.network import Network

__all__ = ["DigitsNetwork"]


class DigitsNetwork(Network):
    """Convolution of 32 filters (3x3, padded), pooled; 128 hidden units; 10 outputs.

    The layer counts are those of the paper; the widths are ours. Inputs are 1x8x8.
    """

    input_shape = (1, 8, 8)

    def __init__(self, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 32, kernel_size=3, padding=1)
        self.hidden = nn.Linear(32 * 4 * 4, 128)
        self.output = nn.Linear(128, 10)
        xavier_(self, generator)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits."""
        features = max_pool2d(relu(self.conv(images)), 2)
        output: Tensor = self.output(relu(self.hidden(features.flatten(1))))
        return output
