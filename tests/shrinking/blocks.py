"""Building blocks of random networks, written as users write them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812


class ConvNorm(nn.Module):
    def __init__(self, width: int, out: int, *, norm: nn.Module, padding: int, bias: bool, act: nn.Module) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, out, 3 if padding else 1, padding=padding, bias=bias)
        self.norm = norm
        self.act = act

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.norm(self.conv(x)))


class Residual(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, hidden, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(hidden)
        self.second = nn.Conv2d(hidden, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm(self.first(x)), inplace=True)
        y = self.second(y)
        y += x
        return F.relu(y)


class DenseBranch(nn.Module):
    def __init__(self, width: int, growth: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(width)
        self.conv = nn.Conv2d(width, growth, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.conv(F.relu(self.norm(x)))], 1)


class InvertedBottleneck(nn.Module):
    def __init__(self, width: int, hidden: int, *, squeeze: bool) -> None:
        super().__init__()
        self.expand = nn.Conv2d(width, hidden, 1)
        self.depthwise = nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden, bias=False)
        self.norm = nn.BatchNorm2d(hidden)
        self.squeeze = SqueezeExcite(hidden, 3) if squeeze else nn.Identity()
        self.project = nn.Conv2d(hidden, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.hardswish(self.expand(x))
        return x + self.project(self.squeeze(F.relu6(self.norm(self.depthwise(y)))))


class SqueezeExcite(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(width, hidden, 1)
        self.restore = nn.Conv2d(hidden, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        gate = x.mean((2, 3), keepdim=True)
        return x * torch.sigmoid(self.restore(F.relu(self.reduce(gate))))


class Grouped(nn.Module):
    def __init__(self, width: int, groups: int, each: int) -> None:
        super().__init__()
        self.before = nn.Conv2d(width, groups * each, 1)
        self.grouped = nn.Conv2d(groups * each, groups * each, 3, padding=1, groups=groups)
        self.after = nn.Conv2d(groups * each, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.after(F.relu(self.grouped(F.relu(self.before(x)))))


class Shuffle(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.left = nn.Conv2d(width, 4, 1)
        self.right = nn.Conv2d(width, 4, 1)
        self.after = nn.Conv2d(8, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.cat([self.left(x), self.right(x)], 1)
        y = y.view(y.size(0), 2, y.size(1) // 2, y.size(2), y.size(3)).transpose(1, 2).flatten(1, 2)
        first, second = y.chunk(2, dim=1)
        return self.after(torch.cat([F.relu(first), second], 1))


class UShape(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.down = nn.Conv2d(width, hidden, 3, padding=1)
        self.up = nn.ConvTranspose2d(hidden, hidden, 2, stride=2)
        self.merge = nn.Conv2d(width + hidden, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.up(F.max_pool2d(F.relu(self.down(x)), 2, ceil_mode=True))
        return self.merge(torch.cat([x, y[:, :, : x.shape[2], : x.shape[3]]], 1))


class Upsampled(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.avg_pool2d(x, 2, ceil_mode=True)
        return x + F.interpolate(self.conv(y), size=x.shape[2:], mode="nearest")


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, *, fused: bool) -> None:
        super().__init__()
        self.num_heads, self.head_dim = heads, width // heads
        self.scale = self.head_dim**-0.5
        self.fused = fused
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.project = nn.Linear(width, width)

    def split(self, x: Tensor) -> Tensor:
        return x.view(x.size(0), x.size(1), self.num_heads, -1).transpose(1, 2)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=self.scale)
        else:
            scores = q @ k.transpose(-2, -1) * self.scale
            if mask is not None:
                scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
            y = torch.softmax(scores, dim=-1) @ v
        return x + self.project(y.transpose(1, 2).flatten(2))


class GatedMLP(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.value = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.silu(self.gate(x)) * self.value(x))


class Recurrent(nn.Module):
    def __init__(self, width: int, hidden: int, *, gru: bool, both: bool) -> None:
        super().__init__()
        kind = nn.GRU if gru else nn.LSTM
        self.cell = kind(width, hidden, num_layers=2, batch_first=True, bidirectional=both)
        self.after = nn.Linear(2 * hidden if both else hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.cell(x)[0])


class Twice(nn.Module):
    """A layer that is called twice, and one that shares its weight."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.shared = nn.Linear(width, width)
        self.shared.weight = self.layer.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.shared(F.relu(self.layer(F.relu(self.layer(x)))))


class PaddedAverage(nn.Module):
    """Average pooling whose border counts the padding: a constant is another one there."""

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(x, 3, stride=1, padding=1)


class SumOverSpace(nn.Module):
    """Each channel plus a part of its sum over all positions."""

    def forward(self, x: Tensor) -> Tensor:
        return x + 0.1 * x.sum((2, 3), keepdim=True)


class ScaledBySize(nn.Module):
    """A scale that depends on the batch size and on the size of the input."""

    def __init__(self, *, root: bool) -> None:
        super().__init__()
        self.root = root

    def forward(self, x: Tensor) -> Tensor:
        return x * x.shape[1 if x.dim() == 3 else 2] ** 0.5 if self.root else x / x.shape[0]


class CumulativeSum(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 0.1 * x.cumsum(1)


class SoftmaxOverPositions(nn.Module):
    """A hidden layer, normalised over the positions."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.relu(self.up(x)).softmax(1))


class CausalMean(nn.Module):
    """Every position is the mean of those before it, by a mask that is longer than the sequence."""

    def __init__(self, width: int, longest: int) -> None:
        super().__init__()
        self.register_buffer("mask", torch.ones(longest, longest).tril())
        self.value = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        mask = self.get_buffer("mask").to(x.dtype)[: x.shape[1], : x.shape[1]]
        return x + (mask / mask.sum(1, keepdim=True)) @ self.value(x)
