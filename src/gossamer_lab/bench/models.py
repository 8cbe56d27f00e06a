"""The networks of the benchmarks, with random inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

__all__ = ["WORKLOADS", "Block", "Workload", "lenet", "perceptron", "residual_network", "transformer"]


@dataclass(frozen=True)
class Workload:
    """A network with an input shape, for a ten-class problem."""

    name: str
    build: Callable[[], nn.Module]
    input_shape: tuple[int, ...]

    def batch(self, size: int | None = None) -> tuple[Tensor, Tensor]:
        """Return random inputs and labels, of batch size `size` if given."""
        generator = torch.Generator().manual_seed(0)
        shape = self.input_shape if size is None else (size, *self.input_shape[1:])
        return torch.randn(shape, generator=generator), torch.randint(10, shape[:1], generator=generator)


def lenet(first: int = 20, second: int = 50, hidden: int = 500) -> nn.Module:
    """LeNet-5 with the widths of Caffe: 20 and 50 filters of 5x5, 500 hidden units; 430,500 weights."""
    return nn.Sequential(
        nn.Conv2d(1, first, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(first, second, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * second, hidden),
        nn.ReLU(),
        nn.Linear(hidden, 10),
    )


class Block(nn.Module):
    """A residual block of two 3x3 convolutions."""

    def __init__(self, inputs: int, outputs: int, stride: int, inner: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, inner, 3, stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(inner)
        self.second = nn.Conv2d(inner, outputs, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        same = stride == 1 and inputs == outputs
        self.shortcut: nn.Module = (
            nn.Identity()
            if same
            else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return relu(f(x) + shortcut(x))."""
        inner: Tensor = self.second_norm(self.second(relu(self.first_norm(self.first(images)))))
        return relu(inner + self.shortcut(images))


def residual_network(width: int = 64, inner: float = 1.0) -> nn.Module:
    """The architecture of ResNet-18: a 7x7 stem, then two blocks each of 1, 2, 4 and 8 times `width` channels.

    Args:
        width: Channels of the stem.
        inner: Fraction of the channels between the two convolutions of a block.
    """
    stem = [nn.Conv2d(3, width, 7, 2, padding=3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    blocks: list[nn.Module] = []
    inputs = width
    for factor, stride in ((1, 1), (2, 2), (4, 2), (8, 2)):
        outputs = factor * width
        between = round(inner * outputs)
        blocks += [Block(inputs, outputs, stride, between), Block(outputs, outputs, 1, between)]
        inputs = outputs
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10))


def perceptron(width: int = 4096, hidden: int = 2) -> nn.Module:
    """A fully connected network: 784 inputs, `hidden` layers of `width` units, 10 outputs."""
    layers: list[nn.Module] = [nn.Linear(784, width), nn.ReLU()]
    for _ in range(hidden - 1):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 10))


class _Transformer(nn.Module):
    """A transformer encoder over a sequence of vectors, averaged and classified."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.output = nn.Linear(width, 10)

    def forward(self, sequence: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.output(self.layers(sequence).mean(1))
        return logits


def transformer(width: int = 512, layers: int = 6) -> nn.Module:
    """A transformer encoder with 8 heads on sequences of vectors; 18.9 million weights by default."""
    return _Transformer(width, layers)


WORKLOADS = (
    Workload("LeNet-5, batch 128", lenet, (128, 1, 28, 28)),
    Workload("ResNet-18, batch 32 of 64x64", residual_network, (32, 3, 64, 64)),
    Workload("perceptron 4096 wide, batch 128", perceptron, (128, 784)),
    Workload("transformer of 6 layers, batch 8 x 128", transformer, (8, 128, 512)),
)
