"""Networks for MNIST: LeNet-5 with the widths of Caffe, and LeNet-300-100."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu

from gossamer_lab.networks.initialise import xavier_
from gossamer_lab.networks.network import Network

__all__ = ["MnistNetwork", "MnistPerceptron"]


class MnistNetwork(Network):
    """LeNet-5: convolutions of 20 and 50 filters (5x5), each pooled; 500 hidden units; 10 outputs.

    The layer counts are those of the paper. The widths are those of Caffe's LeNet-5, a common benchmark: 430,500
    weights, 2,293,000 MACs. Inputs are 1x28x28.
    """

    input_shape = (1, 28, 28)

    def __init__(self, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, kernel_size=5)
        self.conv2 = nn.Conv2d(20, 50, kernel_size=5)
        self.hidden = nn.Linear(50 * 4 * 4, 500)
        self.output = nn.Linear(500, 10)
        xavier_(self, generator)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits."""
        features = relu(max_pool2d(self.conv1(images), 2))
        features = relu(max_pool2d(self.conv2(features), 2))
        output: Tensor = self.output(relu(self.hidden(features.flatten(1))))
        return output


class MnistPerceptron(Network):
    """LeNet-300-100: hidden layers of 300 and 100 units; 10 outputs. Inputs are 1x28x28."""

    input_shape = (1, 28, 28)

    def __init__(self, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.hidden1 = nn.Linear(28 * 28, 300)
        self.hidden2 = nn.Linear(300, 100)
        self.output = nn.Linear(100, 10)
        xavier_(self, generator)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits."""
        hidden = relu(self.hidden1(images.flatten(1)))
        output: Tensor = self.output(relu(self.hidden2(hidden)))
        return output
