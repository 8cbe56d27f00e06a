"""Random networks from all operations, with random exact zeros by group and by element."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from .blocks import (
    Attention,
    CausalMean,
    ConvNorm,
    CumulativeSum,
    DenseBranch,
    GatedMLP,
    Grouped,
    InvertedBottleneck,
    PaddedAverage,
    Recurrent,
    Residual,
    ScaledBySize,
    Shuffle,
    SoftmaxOverPositions,
    SqueezeExcite,
    SumOverSpace,
    Twice,
    Upsampled,
    UShape,
)

Inputs = Tensor | tuple[Tensor, ...]


@dataclass(frozen=True)
class Recipe:
    """Everything that a random network and the inputs that it is tried on are made from.

    `batch` and `size` are those of a second input: the length of a sequence, or the height of an image. `mask` is the
    kind and the layout of a mask for the attention of a sequence, if there is one.
    """

    image: bool
    blocks: tuple[int, ...]
    seed: int
    density: float
    double: bool
    batch: int
    size: int
    mask: tuple[str, str] | None = None


KINDS = 20
LONGEST = 9
MASKS = [None, *itertools.product(["bool", "float", "additive"], ["[B, T]", "[B, 1, T, T]", "[T, T]"])]

recipes = st.builds(
    Recipe,
    image=st.booleans(),
    blocks=st.lists(st.integers(0, KINDS - 1), min_size=1, max_size=4).map(tuple),
    seed=st.integers(0, 2**31 - 1),
    density=st.sampled_from([0.3, 0.6, 0.9]),
    double=st.booleans(),
    batch=st.integers(1, 5),
    size=st.integers(1, LONGEST),
    mask=st.sampled_from(MASKS),
)


class ImageNet(nn.Module):
    def __init__(self, blocks: list[nn.Module], width: int, *, pooled: bool) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, padding=1)
        self.blocks = nn.Sequential(*blocks)
        self.pooled = pooled
        self.hidden = nn.Linear(width if pooled else width * 64, 7)
        self.head = nn.Linear(7, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(torch.relu(self.stem(x)))
        x = x.mean((2, 3)) if self.pooled else x.flatten(1)
        return self.head(torch.tanh(self.hidden(x)))


class TokenNet(nn.Module):
    """A mask of floats is one where a position is read; of one per position, every position reads the same ones."""

    def __init__(self, blocks: list[nn.Module], width: int, mask: tuple[str, str] | None = None) -> None:
        super().__init__()
        self.table = nn.Embedding(11, width)
        self.place = nn.Parameter(torch.randn(1, LONGEST, width))
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Linear(width, 4)
        self.mask = mask

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.table(x) + self.place[:, : x.shape[1]]
        if mask is not None and self.mask is not None:
            mask = (1 - mask.to(x.dtype)) * -1e4 if self.mask[0] == "float" else mask
            mask = mask[:, None, None, :] if self.mask[1] == "[B, T]" else mask
        for block in self.blocks:
            x = block(x, mask) if isinstance(block, Attention) else block(x)
        return self.head(x.mean(1))


def build(recipe: Recipe) -> tuple[nn.Module, Inputs]:
    """The network of a recipe, with its zeros, and an example."""
    torch.manual_seed(recipe.seed)
    model = _image_network(recipe) if recipe.image else _token_network(recipe)
    _wake_statistics(model)
    sprinkle_zeros(model, recipe.density)
    if recipe.double:
        model = model.double()
    example = _images(recipe, 2, 8, 8) if recipe.image else _tokens(recipe, 2, 5)
    return model.eval(), example


def other_values(recipe: Recipe) -> Inputs:
    """An input of the sizes of the example."""
    return _images(recipe, 2, 8, 8) if recipe.image else _tokens(recipe, 2, 5)


def second_input(recipe: Recipe, model: nn.Module) -> Inputs:
    """An input of another batch size, and of another length or image size if the network takes one."""
    if not recipe.image:
        return _tokens(recipe, recipe.batch, recipe.size)
    if not isinstance(model, ImageNet) or not model.pooled:
        return _images(recipe, recipe.batch, 8, 8)
    smallest = 1 + 2 * sum(isinstance(block, ConvNorm) for block in model.blocks)
    return _images(recipe, recipe.batch, smallest + recipe.size, smallest + recipe.batch)


def _images(recipe: Recipe, batch: int, height: int, width: int) -> Tensor:
    return torch.randn(batch, 3, height, width, dtype=torch.float64 if recipe.double else torch.float32)


def _tokens(recipe: Recipe, batch: int, length: int) -> Inputs:
    tokens = torch.randint(0, 11, (batch, length))
    return tokens if recipe.mask is None else (tokens, _mask(*recipe.mask, batch, length, double=recipe.double))


def _mask(kind: str, layout: str, batch: int, length: int, *, double: bool) -> Tensor:
    """A mask in which every position reads at least one."""
    shape = {"[B, T]": (batch, length), "[B, 1, T, T]": (batch, 1, length, length), "[T, T]": (length, length)}[layout]
    read = torch.rand(shape) < 0.6
    read[..., 0] = True
    dtype = torch.float64 if double else torch.float32
    if kind == "additive":
        return torch.zeros(shape, dtype=dtype).masked_fill(~read, -torch.inf)
    return read if kind == "bool" else read.to(dtype)


def _image_network(recipe: Recipe) -> nn.Module:
    width = 6
    blocks: list[nn.Module] = []
    for kind in recipe.blocks:
        norms = [nn.BatchNorm2d(8), nn.GroupNorm(4, 8), nn.Identity(), nn.InstanceNorm2d(8, affine=True)]
        acts = [nn.ReLU(inplace=True), nn.GELU(), nn.PReLU(8), nn.Hardtanh()]
        makers: list[Callable[[], tuple[nn.Module, int]]] = [
            lambda w=width: (Residual(w, 5), w),
            lambda w=width: (DenseBranch(w, 4), w + 4),
            lambda w=width: (InvertedBottleneck(w, 8, squeeze=True), w),
            lambda w=width: (InvertedBottleneck(w, 8, squeeze=False), w),
            lambda w=width: (SqueezeExcite(w, 3), w),
            lambda w=width: (Grouped(w, 3, 4), w),
            lambda w=width: (Shuffle(w), w),
            lambda w=width: (UShape(w, 5), w),
            lambda w=width: (Upsampled(w), w),
            lambda w=width: (nn.Sequential(nn.BatchNorm2d(w), nn.Dropout(0.2)), w),
            lambda w=width: (PaddedAverage(), w),
            lambda w=width: (SumOverSpace(), w),
            lambda w=width: (ScaledBySize(root=False), w),
            lambda w=width: (ScaledBySize(root=True), w),
        ]
        if kind < len(makers):
            block, width = makers[kind]()
        else:
            norm, act = norms[kind % 4], acts[(kind + recipe.seed) % 4]
            block = ConvNorm(width, 8, norm=norm, padding=kind % 2, bias=kind % 3 > 0, act=act)
            width = 8
        blocks.append(block)
    return ImageNet(blocks, width, pooled=recipe.seed % 2 == 0)


def _token_network(recipe: Recipe) -> nn.Module:
    width = 8
    makers: list[Callable[[], nn.Module]] = [
        lambda: Attention(width, 2, fused=True),
        lambda: Attention(width, 4, fused=False),
        lambda: GatedMLP(width, 9),
        lambda: Recurrent(width, 5, gru=False, both=True),
        lambda: Recurrent(width, 5, gru=True, both=False),
        lambda: Twice(width),
        lambda: nn.LayerNorm(width),
        lambda: nn.Sequential(nn.Linear(width, 6), nn.ReLU(), nn.Linear(6, width, bias=False)),
        lambda: nn.Sequential(nn.Linear(width, 6), nn.ReLU(), CumulativeSum(), nn.Linear(6, width)),
        lambda: nn.Sequential(nn.Linear(width, 6), nn.ReLU(), ScaledBySize(root=True), nn.Linear(6, width)),
        lambda: nn.Sequential(nn.Linear(width, 6), nn.Tanh(), ScaledBySize(root=False), nn.Linear(6, width)),
        lambda: SoftmaxOverPositions(width, 6),
        lambda: CausalMean(width, LONGEST),
    ]
    return TokenNet([makers[kind % len(makers)]() for kind in recipe.blocks], width, recipe.mask)


def _wake_statistics(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2.0)
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)


def sprinkle_zeros(model: nn.Module, density: float) -> None:
    """Each parameter loses rows, columns, single elements or nothing."""
    with torch.no_grad():
        for parameter in model.parameters():
            pattern = int(torch.randint(0, 5, ()))
            if pattern == 0:
                parameter[torch.rand(parameter.size(0)) > density] = 0
            elif pattern == 1 and parameter.dim() > 1:
                parameter[:, torch.rand(parameter.size(1)) > density] = 0
            elif pattern == 2:
                parameter[torch.rand_like(parameter) > density] = 0
            elif pattern == 3 and parameter.dim() > 1:
                parameter[torch.rand(parameter.size(0)) > density] = 0
                parameter[:, torch.rand(parameter.size(1)) > density] = 0
