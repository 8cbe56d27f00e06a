"""Networks for PENDIGITS: two convolutions, two fully connected layers."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu

from gossamer_lab.networks.initialise import xavier_
from gossamer_lab.networks.network import Network

__all__ = ["PendigitsNetwork", "WidePendigitsNetwork"]


class PendigitsNetwork(Network):
    """Convolutions of 32 and 64 filters (3x3, padded), the second pooled; 128 hidden units; 10 outputs.

    The layer counts are those of the paper; the widths are ours. Inputs are 1x4x4.
    """

    input_shape = (1, 4, 4)
    widths: ClassVar[tuple[int, int, int]] = (32, 64, 128)

    def __init__(self, generator: torch.Generator | None = None) -> None:
        super().__init__()
        first, second, hidden = self.widths
        self.conv1 = nn.Conv2d(1, first, kernel_size=3, padding=1)
        self.conv2 = nn.Conv2d(first, second, kernel_size=3, padding=1)
        self.hidden = nn.Linear(second * 2 * 2, hidden)
        self.output = nn.Linear(hidden, 10)
        xavier_(self, generator)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits."""
        features = relu(self.conv1(images))
        features = relu(max_pool2d(self.conv2(features), 2))
        output: Tensor = self.output(relu(self.hidden(features.flatten(1))))
        return output


class WidePendigitsNetwork(PendigitsNetwork):
    """`PendigitsNetwork` with twice the units in every layer, for the ablation of the width."""

    widths = (64, 128, 256)
