"""What the dimensions of a weight mean, and a weight seen as groups.

Every weight here is a linear map from input units to output units, whatever order its dimensions are stored in:

    Linear            out, in                 Embedding        in, out   (a row for each token)
    ConvNd            block, out, in, tap     ConvTransposeNd  block, in, out, tap
    LSTM, GRU, RNN    gate, out, in

`block` counts the groups of a grouped convolution, `tap` the positions of its kernel, `gate` the gates of a
recurrent cell, which live and die together with their hidden unit. A group of weights belongs to one index of some of
these axes and holds all indices of the others:

    groups     one group for each    holds
    outputs    block, out            what a unit receives
    inputs     block, in             what a unit sends
    taps       block, in, tap        what a unit sends from one place of the kernel
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import singledispatch
from typing import Literal, get_args

from torch import Tensor, nn

from gossamer.errors import GossamerError

__all__ = ["Axis", "Groups", "Layout", "layouts", "require_groups"]

Axis = Literal["block", "gate", "out", "in", "tap"]
Groups = Literal["outputs", "inputs", "taps"]

_INDEX: dict[Groups, frozenset[Axis]] = {
    "outputs": frozenset({"block", "out"}),
    "inputs": frozenset({"block", "in"}),
    "taps": frozenset({"block", "in", "tap"}),
}


def require_groups(groups: str) -> None:
    """Raise unless `groups` is one of the three ways to see a weight as groups."""
    if groups not in get_args(Groups):
        raise GossamerError(f"`groups` must be one of {', '.join(get_args(Groups))}; received {groups!r}.")


@dataclass(frozen=True)
class Layout:
    """The axes of a weight in the order in which it is stored, with their sizes."""

    axes: tuple[Axis, ...]
    sizes: tuple[int, ...]

    def count(self, groups: Groups) -> int:
        """How many groups there are."""
        return math.prod(size for axis, size in enumerate(self.sizes) if self.indexes(axis, groups))

    def group_size(self, groups: Groups) -> int:
        """How many weights a group holds."""
        return math.prod(self.sizes) // max(self.count(groups), 1)

    def as_groups(self, weight: Tensor, groups: Groups) -> Tensor:
        """`weight` as (groups, weights of a group); a view where the memory allows it."""
        order = self._order(groups)
        return weight.reshape(self.sizes).permute(order).reshape(self.count(groups), self.group_size(groups))

    def from_groups(self, grouped: Tensor, groups: Groups, shape: tuple[int, ...]) -> Tensor:
        """The inverse of `as_groups`."""
        order = self._order(groups)
        back = sorted(range(len(order)), key=order.__getitem__)
        return grouped.reshape([self.sizes[i] for i in order]).permute(back).reshape(shape)

    def indexes(self, axis: int, groups: Groups) -> bool:
        """Whether an axis, by its place, tells the groups apart; the others lie inside a group."""
        return self.axes[axis] in _INDEX[groups]

    def _order(self, groups: Groups) -> list[int]:
        # A stable sort: the axes that index the groups first, those inside a group after.
        return sorted(range(len(self.axes)), key=lambda axis: not self.indexes(axis, groups))


@singledispatch
def layouts(module: nn.Module) -> dict[str, Layout]:
    """The weights of a layer: attribute name -> layout. Empty for a module that is not a weight layer.

    Biases and normalisation layers have no entry. Register a type of your own with `layouts.register`.
    """
    del module
    return {}


@layouts.register
def _(module: nn.Linear) -> dict[str, Layout]:
    return {"weight": Layout(("out", "in"), tuple(module.weight.shape))}


@layouts.register(nn.Embedding)
@layouts.register(nn.EmbeddingBag)
def _(module: nn.Embedding | nn.EmbeddingBag) -> dict[str, Layout]:
    return {"weight": Layout(("in", "out"), tuple(module.weight.shape))}


@layouts.register(nn.Conv1d)
@layouts.register(nn.Conv2d)
@layouts.register(nn.Conv3d)
def _(module: nn.Conv1d | nn.Conv2d | nn.Conv3d) -> dict[str, Layout]:
    outputs, inputs, *kernel = module.weight.shape
    sizes = (module.groups, outputs // module.groups, inputs, math.prod(kernel))
    return {"weight": Layout(("block", "out", "in", "tap"), sizes)}


@layouts.register(nn.ConvTranspose1d)
@layouts.register(nn.ConvTranspose2d)
@layouts.register(nn.ConvTranspose3d)
def _(module: nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d) -> dict[str, Layout]:
    inputs, outputs, *kernel = module.weight.shape
    sizes = (module.groups, inputs // module.groups, outputs, math.prod(kernel))
    return {"weight": Layout(("block", "in", "out", "tap"), sizes)}


@layouts.register(nn.RNNBase)
@layouts.register(nn.RNNCellBase)
def _(module: nn.RNNBase | nn.RNNCellBase) -> dict[str, Layout]:
    found: dict[str, Layout] = {}
    for name, parameter in module.named_parameters(recurse=False):
        if name.startswith("weight"):
            rows, columns = parameter.shape
            gates = 1 if name.startswith("weight_hr") else _gates(module)  # weight_hr projects the hidden state
            found[name] = Layout(("gate", "out", "in"), (gates, rows // gates, columns))
    return found


@layouts.register
def _(module: nn.MultiheadAttention) -> dict[str, Layout]:
    projections = ["in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"]
    found = {name: getattr(module, name) for name in projections}
    found["out_proj.weight"] = module.out_proj.weight  # a child module, but never called as one
    return {name: Layout(("out", "in"), tuple(w.shape)) for name, w in found.items() if w is not None}


def _gates(module: nn.RNNBase | nn.RNNCellBase) -> int:
    if isinstance(module, nn.LSTM | nn.LSTMCell):
        return 4
    return 3 if isinstance(module, nn.GRU | nn.GRUCell) else 1
