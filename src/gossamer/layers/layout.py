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

Groups of `"units"` run through several weights (`gossamer.shrinking.units`); no layout of one weight has them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from torch import Tensor

from gossamer.errors import GossamerError

__all__ = ["Axis", "Groups", "Layout", "require_groups"]

Axis = Literal["block", "gate", "out", "in", "tap"]
Groups = Literal["outputs", "inputs", "taps", "units"]

_INDEX: dict[Groups, frozenset[Axis]] = {
    "outputs": frozenset({"block", "out"}),
    "inputs": frozenset({"block", "in"}),
    "taps": frozenset({"block", "in", "tap"}),
}


def require_groups(groups: str) -> None:
    """Raise `GossamerError` unless `groups` is a known grouping."""
    if groups not in get_args(Groups):
        raise GossamerError(f"`groups` must be one of {', '.join(get_args(Groups))}; received {groups!r}.")


@dataclass(frozen=True)
class Layout:
    """The axes of a weight in the order in which it is stored, with their sizes."""

    axes: tuple[Axis, ...]
    sizes: tuple[int, ...]

    @classmethod
    def split(cls, axes: tuple[Axis, ...], shape: tuple[int, ...], parts: int) -> Layout:
        """The layout of a weight of this shape: a first axis of blocks or gates splits dimension 0, taps take the rest.

        Args:
            axes: The axes in the order in which they are stored.
            shape: The shape of the weight.
            parts: How many blocks or gates there are.
        """
        first, *others = shape
        sizes = [parts, first // parts] if axes[0] in ("block", "gate") else [first]
        if axes[-1] == "tap":
            sizes += [others[0], math.prod(others[1:])]
        else:
            sizes += others
        return cls(axes, tuple(sizes))

    def count(self, groups: Groups) -> int:
        """Number of groups."""
        return math.prod(size for axis, size in enumerate(self.sizes) if self.indexes(axis, groups))

    def group_size(self, groups: Groups) -> int:
        """Number of weights in a group."""
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
        """Whether the axis at this position indexes the groups; the other axes lie inside a group."""
        return self.axes[axis] in _INDEX[groups]

    def _order(self, groups: Groups) -> list[int]:
        # A stable sort: the axes that index the groups first, those inside a group after.
        return sorted(range(len(self.axes)), key=lambda axis: not self.indexes(axis, groups))
