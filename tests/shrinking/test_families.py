"""Small versions of the public families, half of whose units are dead: smaller, and the same outputs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from gossamer.shrinking import plan

from .blocks import DenseBranch, InvertedBottleneck, Residual, UShape


class Classifier(nn.Module):
    def __init__(self, *blocks: nn.Module, width: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(width, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(F.relu(self.norm(self.stem(x))))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class EncoderLayer(nn.Module):
    """As in BERT: separate projections, a mask from outside, norms after the additions."""

    def __init__(self, width: int = 12, heads: int = 3) -> None:
        super().__init__()
        self.head_size = width // heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 20), nn.Linear(20, width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        shape = (*x.shape[:-1], -1, self.head_size)
        q, k, v = (layer(x).view(shape).transpose(1, 2) for layer in (self.query, self.key, self.value))
        scores = q @ k.transpose(-1, -2) / self.head_size**0.5 + mask[:, None, None, :]
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(*x.shape[:-1], -1)
        x = self.first(x + self.out(mixed))
        return self.second(x + self.down(F.gelu(self.up(x))))


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(20, 12), nn.Embedding(8, 12)
        self.layers = nn.ModuleList(EncoderLayer() for _ in range(2))

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.size(1)))
        bias = (1.0 - mask) * -1e4
        for layer in self.layers:
            x = layer(x, bias)
        return x[:, 0]


class RootMeanSquare(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class DecoderLayer(nn.Module):
    """As in Llama: rotary positions, fewer key than query heads, a gated perceptron."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.head_dim = 4
        self.query, self.out = nn.Linear(width, 16, bias=False), nn.Linear(16, width, bias=False)
        self.key, self.value = nn.Linear(width, 8, bias=False), nn.Linear(width, 8, bias=False)
        self.before, self.after = RootMeanSquare(width), RootMeanSquare(width)
        self.gate, self.up = nn.Linear(width, 20, bias=False), nn.Linear(width, 20, bias=False)
        self.down = nn.Linear(20, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.before(x)
        shape = (*y.shape[:-1], -1, self.head_dim)
        q, k, v = (layer(y).view(shape).transpose(1, 2) for layer in (self.query, self.key, self.value))
        angle = torch.arange(y.size(1))[:, None] / torch.tensor([1.0, 10.0, 1.0, 10.0])
        q, k = (t * angle.cos() + torch.cat([-t[..., 2:], t[..., :2]], -1) * angle.sin() for t in (q, k))
        k, v = (t[:, :, None].expand(-1, -1, 2, -1, -1).flatten(1, 2) for t in (k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        y = self.after(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 12)
        self.layers = nn.ModuleList(DecoderLayer() for _ in range(2))
        self.norm = RootMeanSquare(12)
        self.head = nn.Linear(12, 20, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


IMAGE = (torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0)),)
IDS = torch.randint(0, 20, (2, 6), generator=torch.Generator().manual_seed(0))
FAMILIES = {
    "residual": (lambda: Classifier(Residual(8, 10), Residual(8, 10), width=8), IMAGE, 0.55),
    "dense block": (lambda: Classifier(DenseBranch(8, 6), DenseBranch(14, 6), width=20), IMAGE, 0.45),
    "inverted bottleneck": (lambda: Classifier(InvertedBottleneck(8, 16, squeeze=False), width=8), IMAGE, 0.55),
    "squeeze-excite": (lambda: Classifier(InvertedBottleneck(8, 16, squeeze=True), width=8), IMAGE, 0.6),
    "U shape": (lambda: UShape(3, 12), IMAGE, 0.6),
    "encoder": (Encoder, (IDS, torch.ones(2, 6)), 0.85),
    "decoder": (Decoder, (IDS,), 0.85),
}


def kill_half(model: nn.Module) -> None:
    """Half of the outputs of every layer are zero, biases and shifts too."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Linear | nn.Conv2d) and module.weight.size(0) != 20:
                dead = torch.randperm(module.weight.size(0), generator=generator)[: module.weight.size(0) // 2]
                module.weight[dead] = 0
                if module.bias is not None:
                    module.bias[dead] = 0
            if isinstance(module, nn.Linear) and module.weight.size(0) == 20 and module.weight.size(1) == 12:
                module.weight[::2] = 0
            if isinstance(module, nn.BatchNorm2d):
                module.bias.zero_()
                module.running_mean.zero_()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("form", ["module", "graph"])
def test_half_dead_families_shrink(family: str, form: str) -> None:
    torch.manual_seed(0)
    make, example, most = FAMILIES[family]
    model = make().eval()
    kill_half(model)
    found = plan(model, example, form=form)  # type: ignore[arg-type]
    small = found.apply()
    torch.testing.assert_close(small(*example), model(*example), rtol=1e-5, atol=1e-5)
    assert found.weights_after == sum(p.numel() for p in small.parameters())
    assert found.weights_after <= most * found.weights_before, str(found)
