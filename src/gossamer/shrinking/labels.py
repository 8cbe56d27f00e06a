"""Who: integer labels for units, ties between them, and pins with a reason.

Every unit that might leave the network (an output of a layer, an element of a parameter) gets a label of its own.
Where two labels meet (the two sides of a residual addition, say) they are tied: they go or stay together. The
connected components under all ties are the *classes* that a plan decides about. A pin says that a label must stay.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["FIXED", "NEUTRAL", "Labels"]

NEUTRAL = 0
"""The label of a position that belongs to no unit (an input, a scalar, a mask): it always stays."""

FIXED = "its size is given by the input"
"""The reason of units that stay because they face such a position."""


class Labels:
    """Hands out labels and remembers what ties and what pins them."""

    def __init__(self) -> None:
        self.count = 1
        self._ties: list[Tensor] = []
        self._pins: list[tuple[Tensor, str]] = []

    def fresh(self, *shape: int) -> Tensor:
        """Labels that nobody has yet, as a tensor of that shape."""
        first = self.count
        self.count += int(torch.Size(shape).numel())
        return torch.arange(first, self.count).view(shape)

    def tie(self, left: Tensor, right: Tensor) -> None:
        """Labels at the same position go or stay together; a neutral partner holds the other one."""
        both_sides = torch.broadcast_tensors(left, right)  # type: ignore[no-untyped-call]
        pairs = torch.stack([side.reshape(-1) for side in both_sides])
        both = (pairs != NEUTRAL).all(0)
        self.pin(pairs.amax(0)[~both], FIXED)
        differing = pairs[:, both & (pairs[0] != pairs[1])]
        if differing.numel():
            self._ties.append(torch.unique(differing, dim=1))

    def pin(self, labels: Tensor, reason: str) -> None:
        """These labels must stay, for a reason that the plan will show."""
        units = torch.unique(labels)
        units = units[units != NEUTRAL]
        if units.numel():
            self._pins.append((units, reason))

    @property
    def pins(self) -> tuple[tuple[Tensor, str], ...]:
        """All pins so far, as pairs of labels and reason."""
        return tuple(self._pins)

    def classes(self) -> Tensor:
        """For each label the smallest label of its class (so a class is named by its first member)."""
        root = torch.arange(self.count)
        if not self._ties:
            return root
        left, right = torch.cat(self._ties, dim=1)
        while True:
            low = torch.minimum(root[left], root[right])
            before = root.clone()
            for side in (left, right):
                root.scatter_reduce_(0, before[side], low, "amin")
            root = root[root]
            if torch.equal(root[left], root[right]) and torch.equal(root, before):
                return root
