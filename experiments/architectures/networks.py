"""The six networks. Modules of PyTorch wherever there is one, so that every method finds what it knows."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

__all__ = ["Attention", "Autoencoder", "MobileNet", "Perceptron", "RecurrentNetwork", "ResNet20", "VisionTransformer"]


def convolution(before: int, after: int, size: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """A convolution without bias, and its BatchNorm."""
    return nn.Sequential(
        nn.Conv2d(before, after, size, stride, size // 2, groups=groups, bias=False), nn.BatchNorm2d(after)
    )


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions around which the input is added."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        stride = 1 if before == after else 2
        self.first = convolution(before, after, 3, stride)
        self.second = convolution(after, after, 3)
        self.shortcut = nn.Identity() if before == after else convolution(before, after, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.second(F.relu(self.first(x))) + self.shortcut(x))


class ResNet20(nn.Sequential):
    """He et al. (2016) for 32x32 images: stages of 16, 32 and 64 channels, three blocks each; 40.8 million MACs."""

    def __init__(self) -> None:
        widths = [16, 16, 16, 16, 32, 32, 32, 64, 64, 64]
        blocks = [ResidualBlock(before, after) for before, after in pairwise(widths)]
        super().__init__(
            *(*convolution(3, 16, 3), nn.ReLU()),
            *blocks,
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)),
        )


class SqueezeExcite(nn.Module):
    """Multiplies each channel by a factor computed from the means of all channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(channels, channels // 4, 1)
        self.excite = nn.Conv2d(channels // 4, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x * F.hardsigmoid(self.excite(F.relu(self.squeeze(F.adaptive_avg_pool2d(x, 1)))))


class InvertedResidual(nn.Module):
    """Expansion by four, depthwise 3x3 convolution, squeeze-excite, projection; the input is added if sizes agree."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        inner = 4 * before
        self.added = before == after and stride == 1
        self.body = nn.Sequential(
            *(convolution(before, inner, 1), nn.Hardswish()),
            *(convolution(inner, inner, 3, stride, groups=inner), nn.Hardswish()),
            *(SqueezeExcite(inner), convolution(inner, after, 1)),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.added else self.body(x)


class MobileNet(nn.Sequential):
    """The blocks of MobileNetV3 for 28x28 images of one channel."""

    def __init__(self) -> None:
        blocks = [(16, 16, 1), (16, 24, 2), (24, 24, 1), (24, 40, 2), (40, 40, 1)]
        super().__init__(
            *(convolution(1, 16, 3, 2), nn.Hardswish()),
            *(InvertedResidual(*block) for block in blocks),
            *(convolution(40, 160, 1), nn.Hardswish()),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(160, 10)),
        )


class Attention(nn.Module):
    """Multi-head self-attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.head_width = heads, width // heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        shape = (self.heads, self.head_width)
        parts = (part(x).unflatten(-1, shape).transpose(1, 2) for part in (self.query, self.key, self.value))
        return self.output(F.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2))


class EncoderBlock(nn.Module):
    """Attention and an MLP, each behind a LayerNorm and added to the residual stream."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Positions(nn.Module):
    """Adds a learned vector to each position."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(count, width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.table, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.table


class VisionTransformer(nn.Module):
    """Three blocks of width 48 with six heads on the 7x7 patches of 4x4 pixels; their mean is classified."""

    def __init__(self, width: int = 48, heads: int = 6, blocks: int = 3) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, width, 4, 4)
        self.positions = Positions(49, width)
        self.blocks = nn.Sequential(*(EncoderBlock(width, heads) for _ in range(blocks)))
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.positions(self.patches(x).flatten(2).transpose(1, 2))
        return self.output(self.norm(self.blocks(x)).mean(1))


class RecurrentNetwork(nn.Module):
    """An LSTM of 128 units reads the 28 rows of an image; its last state is classified."""

    def __init__(self, units: int = 128) -> None:
        super().__init__()
        self.lstm = nn.LSTM(28, units, batch_first=True)
        self.output = nn.Linear(units, 10)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.lstm(x.squeeze(1))
        return self.output(states[:, -1])


class Perceptron(nn.Sequential):
    """48 features, hidden layers of 256, 256 and 128 units, 11 classes."""

    def __init__(self) -> None:
        super().__init__(
            nn.Flatten(),
            *(nn.Linear(48, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU()),
            nn.Linear(128, 11),
        )


class Autoencoder(nn.Sequential):
    """784 - 256 - 64 - 32 - 64 - 256 - 784 units."""

    def __init__(self) -> None:
        widths = [784, 256, 64, 32, 64, 256]
        hidden = [(nn.Linear(before, after), nn.ReLU()) for before, after in pairwise(widths)]
        super().__init__(nn.Flatten(), *(layer for pair in hidden for layer in pair), nn.Linear(256, 784))
