"""Random small networks over all operations that are lowered, with random zeros."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["Recipe", "build"]


@dataclass(frozen=True)
class Recipe:
    """What a random network is made from."""

    kind: str  # "image", "signal" (one dimension), "tokens", "features"
    blocks: int
    seed: int
    density: float


class Chain(nn.Module):
    """Blocks one after the other."""

    def __init__(self, blocks: list[nn.Module]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class Apply(nn.Module):
    """A function of one tensor."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Residual(nn.Module):
    """An inner network, combined with its input."""

    def __init__(self, inner: nn.Module, combine: str) -> None:
        super().__init__()
        self.inner, self.combine = inner, combine

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(x)
        match self.combine:
            case "add":
                return functional.relu(x + y)
            case "sub":
                return y - x
            case "mul":
                return x * torch.sigmoid(y)
            case "div":
                return x / (y.abs() + 1.0)
            case "max":
                return torch.maximum(x, y)
            case _:
                return torch.cat([y, x], 1)


class SqueezeExcite(nn.Module):
    """Channels scaled by a function of their means."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, 3, 1), nn.Conv2d(3, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        scale = functional.hardsigmoid(self.up(functional.relu(self.down(x.mean((2, 3), keepdim=True)))))
        return x * scale


class Split(nn.Module):
    """Half of the channels go through a layer, and the halves are exchanged."""

    def __init__(self, channels: int, layer: nn.Module, way: str) -> None:
        super().__init__()
        self.channels, self.layer, self.way = channels, layer, way

    def forward(self, x: Tensor) -> Tensor:
        if self.way == "chunk":
            a, b = x.chunk(2, 1)
        elif self.way == "split":
            a, b = x.split([self.channels // 2, self.channels - self.channels // 2], 1)
        else:
            a, b = x[:, : self.channels // 2], x[:, self.channels // 2 :]
        return torch.cat([b, self.layer(a)], 1)


class Attention(nn.Module):
    """Self-attention with heads, in one of the ways in which it is written."""

    def __init__(self, width: int, way: str, length: int) -> None:
        super().__init__()
        self.way, self.heads = way, 2
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.module = nn.MultiheadAttention(width, 2, batch_first=True) if way == "module" else None
        hidden = (torch.rand(length, length) < 0.2) & ~torch.eye(length, dtype=torch.bool)
        self.register_buffer("mask", torch.zeros(length, length).masked_fill(hidden, -torch.inf))

    def forward(self, x: Tensor) -> Tensor:
        if self.module is not None:
            return x + self.module(x, x, x, need_weights=False)[0]
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        if self.way == "causal":
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        elif self.way == "masked":
            y = functional.scaled_dot_product_attention(q, k, v, attn_mask=self.mask)
        else:
            y = torch.softmax(q @ k.transpose(-1, -2) / 2.0, -1) @ v
        return x + self.out(y.transpose(1, 2).reshape(batch, length, width))


class Recurrent(nn.Module):
    """An LSTM or GRU; its output, or its last states as well."""

    def __init__(self, width: int, draw: Random) -> None:
        super().__init__()
        kind = draw.choice([nn.LSTM, nn.GRU])
        self.both, self.states = draw.random() < 0.5, draw.random() < 0.5
        self.inner = kind(
            width, width, draw.choice([1, 2]), bias=draw.random() < 0.7, batch_first=True, bidirectional=self.both
        )

    def forward(self, x: Tensor) -> Tensor:
        output, last = self.inner(x)
        if self.both:
            a, b = output.chunk(2, 2)
            output = a + b
        if self.states:
            state = last[0] + last[1] if isinstance(last, tuple) else last
            output = output + state.sum(0).unsqueeze(1)
        return output


def activation(draw: Random) -> nn.Module:
    return draw.choice(
        [
            nn.ReLU(),
            nn.LeakyReLU(0.1),
            nn.GELU(),
            nn.GELU(approximate="tanh"),
            nn.SiLU(),
            nn.Sigmoid(),
            nn.Tanh(),
            nn.Hardswish(),
            nn.Hardsigmoid(),
            nn.ReLU6(),
            nn.ELU(),
            nn.Softplus(),
            nn.Softmax(1),
            Apply(lambda x: functional.relu(x, inplace=False) - 0.1),
            Apply(lambda x: x.clamp(min=-0.5).exp().sqrt()),
        ]
    )


def norm(draw: Random, channels: int, dimensions: int) -> nn.Module:
    batch = nn.BatchNorm2d(channels) if dimensions == 2 else nn.BatchNorm1d(channels)
    batch.running_mean.uniform_(-0.5, 0.5)
    batch.running_var.uniform_(0.5, 2.0)
    return draw.choice([batch, batch, nn.GroupNorm(draw.choice([d for d in (1, 2, 3) if channels % d == 0]), channels)])


def image_block(draw: Random, shape: tuple[int, int, int]) -> nn.Module:
    channels, height, width = shape
    out = draw.randint(1, 9)
    kernel = (draw.randint(1, min(3, height)), draw.randint(1, min(5, width)))
    groups = draw.choice([d for d in range(1, channels + 1) if channels % d == 0])

    def conv() -> nn.Module:
        layer = nn.Conv2d(
            channels,
            groups * draw.randint(1, 3),
            kernel,
            stride=(draw.randint(1, 2), draw.randint(1, 2)),
            padding=(draw.randint(0, 2), draw.randint(0, 2)),
            dilation=draw.choice([1, 1, (1, 2)]) if width > 8 else 1,
            groups=groups,
            bias=draw.random() < 0.7,
        )
        return nn.Sequential(layer, norm(draw, layer.out_channels, 2), activation(draw))

    def same(outputs: int = channels) -> nn.Module:
        return nn.Conv2d(channels, outputs, 3, padding=1)

    def pool() -> nn.Module:
        size = draw.choice([2, 2, 3])
        if min(height, width) < size:
            return nn.Identity()
        return draw.choice(
            [
                nn.MaxPool2d(size),
                nn.MaxPool2d(size, stride=1, padding=1 if size > 1 else 0),
                nn.MaxPool2d(size, stride=2, ceil_mode=True),
                nn.AvgPool2d(size),
                nn.AvgPool2d(size, stride=1, padding=1, count_include_pad=draw.random() < 0.5),
                nn.AdaptiveAvgPool2d((draw.randint(1, height), draw.randint(1, width))),
                nn.AdaptiveMaxPool2d((draw.randint(1, height), draw.randint(1, width))),
            ]
        )

    choices: list[Callable[[], nn.Module]] = [
        conv,
        conv,
        lambda: (
            nn.Sequential(same(out), draw.choice([nn.MaxPool2d(2), nn.AvgPool2d(2)]), activation(draw))
            if min(height, width) > 1
            else conv()
        ),
        lambda: nn.Conv2d(channels, out, (3, draw.choice([1, 5])), padding="same"),
        lambda: nn.Conv2d(channels, channels, 3, padding=1, groups=channels),
        lambda: nn.ConvTranspose2d(
            channels,
            groups * draw.randint(1, 2),
            kernel,
            stride=draw.randint(1, 2),
            padding=draw.randint(0, 1) if min(kernel) > 2 else 0,
            output_padding=0,
            groups=groups,
        ),
        lambda: nn.ConvTranspose2d(channels, out, 3, stride=2, padding=1, output_padding=1),
        pool,
        pool,
        lambda: Residual(
            nn.Sequential(same(), norm(draw, channels, 2)), draw.choice(["add", "sub", "mul", "div", "max", "cat"])
        ),
        lambda: SqueezeExcite(channels),
        lambda: (
            Split(channels, nn.Conv2d(channels // 2, out, 3, padding=1), draw.choice(["chunk", "split", "slice"]))
            if channels % 2 == 0
            else same(out)
        ),
        lambda: nn.Sequential(norm(draw, channels, 2), activation(draw)),
        lambda: nn.Upsample(scale_factor=draw.choice([2, 1.5]), mode="nearest"),
        lambda: nn.Upsample(scale_factor=2, mode="bilinear", align_corners=draw.random() < 0.5),
        lambda: Apply(lambda x: x.permute(0, 1, 3, 2)),
        lambda: Apply(lambda x: functional.pad(x, (1, 0, 0, 2), value=0.5)),
        lambda: nn.Sequential(
            Apply(lambda x: x.permute(0, 2, 3, 1)), nn.LayerNorm(channels), Apply(lambda x: x.permute(0, 3, 1, 2))
        ),
        lambda: nn.Sequential(nn.Linear(width, width + 1), activation(draw)),
    ]
    return draw.choice(choices)()


def signal_block(draw: Random, shape: tuple[int, int]) -> nn.Module:
    channels, length = shape
    groups = draw.choice([d for d in range(1, channels + 1) if channels % d == 0])
    kernel = draw.randint(1, min(5, length))
    choices: list[Callable[[], nn.Module]] = [
        lambda: nn.Sequential(
            nn.Conv1d(
                channels, 2 * groups, kernel, stride=draw.randint(1, 2), padding=draw.randint(0, 2), groups=groups
            ),
            norm(draw, 2 * groups, 1),
            activation(draw),
        ),
        lambda: nn.Conv1d(channels, 4, 3, padding=2, dilation=2),
        lambda: nn.ConvTranspose1d(channels, 3, 4, stride=2, padding=1),
        lambda: nn.MaxPool1d(2) if length > 1 else nn.Identity(),
        lambda: nn.AvgPool1d(2, ceil_mode=True) if length > 1 else nn.Identity(),
        lambda: nn.AdaptiveAvgPool1d(draw.randint(1, length)),
        lambda: nn.Upsample(scale_factor=2, mode=draw.choice(["nearest", "linear"])),
        lambda: nn.Linear(length, length),
        lambda: Residual(nn.Conv1d(channels, channels, 3, padding=1), draw.choice(["add", "cat"])),
    ]
    return draw.choice(choices)()


def token_block(draw: Random, shape: tuple[int, int]) -> nn.Module:
    length, width = shape
    choices: list[Callable[[], nn.Module]] = [
        lambda: nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), activation(draw), nn.Linear(2 * width, width)
        ),
        lambda: Attention(width, draw.choice(["module", "causal", "masked", "written"]), length),
        lambda: Recurrent(width, draw),
        lambda: nn.RMSNorm(width, eps=1e-5),
        lambda: nn.Sequential(
            Apply(lambda x: x.transpose(1, 2)),
            nn.Conv1d(width, width, 3, padding=1),
            Apply(lambda x: x.transpose(1, 2)),
        ),
        lambda: Residual(nn.Sequential(nn.Linear(width, width), activation(draw)), "add"),
        lambda: Apply(lambda x: x - x.mean(1, keepdim=True)),
        lambda: Apply(lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3)),
        lambda: Apply(lambda x: x + x.flip(1) if False else torch.stack([x, -x], 1).amax(1)),
    ]
    return draw.choice(choices)()


def feature_block(draw: Random, shape: tuple[int]) -> nn.Module:
    (width,) = shape
    out = draw.randint(1, 40)
    choices: list[Callable[[], nn.Module]] = [
        lambda: nn.Sequential(nn.Linear(width, out, bias=draw.random() < 0.7), activation(draw)),
        lambda: nn.Sequential(nn.Linear(width, out), nn.BatchNorm1d(out), nn.ReLU(), nn.Dropout(0.5)),
        lambda: Residual(nn.Linear(width, width), draw.choice(["add", "mul", "cat"])),
        lambda: nn.LayerNorm(width),
        lambda: nn.LogSoftmax(1),
    ]
    return draw.choice(choices)()


BLOCKS = {"image": image_block, "signal": signal_block, "tokens": token_block, "features": feature_block}


def build(recipe: Recipe) -> tuple[nn.Module, Tensor]:
    """A network in evaluation mode, and a batch of two samples."""
    draw = Random(recipe.seed)
    torch.manual_seed(recipe.seed)
    example: Tensor
    first: list[nn.Module] = []
    match recipe.kind:
        case "image":
            example = torch.randn(2, draw.randint(1, 4), draw.randint(3, 13), draw.randint(3, 19))
        case "signal":
            example = torch.randn(2, draw.randint(1, 4), draw.randint(4, 30))
        case "tokens":
            length = draw.randint(2, 11)
            if draw.random() < 0.4:
                example = torch.randint(0, 11, (2, length))
                first = [nn.Embedding(11, 8)]
            else:
                example = torch.randn(2, length, 8)
        case _:
            example = torch.randn(2, draw.randint(1, 50))
    blocks = [*first]
    shape = _shape(blocks, example)
    for _ in range(recipe.blocks):
        if torch.Size(shape).numel() > 3000:
            break
        blocks.append(BLOCKS[recipe.kind](draw, shape))
        try:
            shape = _shape(blocks, example)
        except ValueError:  # PyTorch refuses to normalise a single value
            blocks.pop()
    if draw.random() < 0.5:
        blocks += [nn.Flatten(), nn.Linear(torch.Size(shape).numel(), draw.randint(1, 10))]
    model = Chain(blocks).eval()
    _draw_zeros(model, recipe.density, draw)
    return model, example


@torch.no_grad()
def _shape(blocks: list[nn.Module], example: Tensor) -> tuple[int, ...]:
    """What blocks make of one sample."""
    return tuple(Chain(blocks).eval()(example[:1]).shape[1:])


@torch.no_grad()
def _draw_zeros(model: nn.Module, density: float, draw: Random) -> None:
    """Scattered zeros, and now and then a whole output channel."""
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter *= torch.rand_like(parameter) < density
            if draw.random() < 0.3:
                parameter[draw.randrange(len(parameter))] = 0.0
        else:
            parameter += 0.1 * torch.randn_like(parameter)
