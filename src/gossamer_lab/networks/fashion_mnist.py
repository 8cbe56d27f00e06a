"""Network for Fashion-MNIST: two convolutions, three fully connected layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu

from gossamer_lab.networks.initialise import xavier_
from gossamer_lab.networks.network import Network

__all__ = ["FashionMnistNetwork"]


class FashionMnistNetwork(Network):
    """Convolutions of 16 and 40 filters (5x5), each pooled; 256 and 100 hidden units; 10 outputs.

    The layer counts are those of the paper; the widths are ours. Inputs are 1x28x28.
    """

    input_shape = (1, 28, 28)

    def __init__(self, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, kernel_size=5)
        self.conv2 = nn.Conv2d(16, 40, kernel_size=5)
        self.hidden1 = nn.Linear(40 * 4 * 4, 256)
        self.hidden2 = nn.Linear(256, 100)
        self.output = nn.Linear(100, 10)
        xavier_(self, generator)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits."""
        features = relu(max_pool2d(self.conv1(images), 2))
        features = relu(max_pool2d(self.conv2(features), 2))
        hidden = relu(self.hidden1(features.flatten(1)))
        output: Tensor = self.output(relu(self.hidden2(hidden)))
        return output
