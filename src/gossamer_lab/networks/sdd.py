"""Network for SDD: two 1-d convolutions over the features, three fully connected layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool1d, relu

from gossamer_lab.networks.initialise import xavier_
from gossamer_lab.networks.network import Network

__all__ = ["SddNetwork"]


class SddNetwork(Network):
    """1-d convolutions of 16 and 32 filters (5, padded), each pooled; 128 and 64 hidden units; 11 outputs.

    The layer counts are those of the paper; the widths are ours. Inputs are 1x48: one channel of 48 features.
    """

    input_shape = (1, 48)

    def __init__(self, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(1, 16, kernel_size=5, padding=2)
        self.conv2 = nn.Conv1d(16, 32, kernel_size=5, padding=2)
        self.hidden1 = nn.Linear(32 * 12, 128)
        self.hidden2 = nn.Linear(128, 64)
        self.output = nn.Linear(64, 11)
        xavier_(self, generator)

    def forward(self, samples: Tensor) -> Tensor:
        """Return the logits."""
        features = max_pool1d(relu(self.conv1(samples)), 2)
        features = max_pool1d(relu(self.conv2(features)), 2)
        hidden = relu(self.hidden1(features.flatten(1)))
        output: Tensor = self.output(relu(self.hidden2(hidden)))
        return output
