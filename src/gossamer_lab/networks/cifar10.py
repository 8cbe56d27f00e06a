"""Network for CIFAR-10: four convolutions, two fully connected layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu

from gossamer_lab.networks.initialise import xavier_
from gossamer_lab.networks.network import Network

__all__ = ["Cifar10Network"]


class Cifar10Network(Network):
    """Convolutions of 32, 64, 96 and 128 filters (3x3, padded), all but the last pooled; 128 hidden units; 10 outputs.

    The layer counts are those of the paper; the widths are ours. Pooling precedes the activation and comes early, so
    that an epoch takes less than a minute on one core. Inputs are 3x32x32.
    """

    input_shape = (3, 32, 32)

    def __init__(self, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, kernel_size=3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, kernel_size=3, padding=1)
        self.conv3 = nn.Conv2d(64, 96, kernel_size=3, padding=1)
        self.conv4 = nn.Conv2d(96, 128, kernel_size=3, padding=1)
        self.hidden = nn.Linear(128 * 4 * 4, 128)
        self.output = nn.Linear(128, 10)
        xavier_(self, generator)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits."""
        features = relu(max_pool2d(self.conv1(images), 2))
        features = relu(max_pool2d(self.conv2(features), 2))
        features = relu(max_pool2d(self.conv3(features), 2))
        features = relu(self.conv4(features))
        output: Tensor = self.output(relu(self.hidden(features.flatten(1))))
        return output
