"""The last cut: the proximal step after which a network has exactly the size that was asked for.

It takes the place of an ordinary proximal step, so it starts from the weights that the optimizer has just moved, where
hardly any is zero. The zero set of a proximal step grows with the step, so the size of the network falls with it, and
the smallest step that reaches a size is found by bisection. It is longer than an ordinary step if the network is still
too large, and shorter if it has become too small.

Where several weights become zero at once (a group, equal magnitudes), they are zeroed in the order of their magnitudes,
and the number of them is found by bisection as well. The size is thus met to one weight; where whole units count, to
one unit.

If a unit is a large part of the network, its removal may leave room for smaller ones of other weights. Then the zeros
of the weight with the largest units are kept, and the step of the others is shortened as far as the size allows; and so
on with the next largest.

Only the zeros of that step are taken. The weights that remain keep their values: shrinking them would change the
network more than the zeros do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from gossamer.proximal.fused import Move

__all__ = ["cut_", "step_to_half"]

Take = Callable[[list[Move]], None]

_EXPONENTS = (-60.0, 100.0)  # steps from 2^-60 to 2^100
_BISECTIONS = 40
_ROUGH = 14  # bisections to a hundredth of an octave
_CLOSE = 0.99  # of the size that was asked for: not worth filling
_MOST_FILLED = 8  # weights whose zeros are kept in turn


def step_to_half(moves: Sequence[Move], take: Take) -> float | None:
    """The proximal step that sets half of the non-zero weights to zero; None if there is none. Weights are restored."""
    trial = _Trial(moves, take)
    size = trial.nonzeros()
    _, step = trial.bracket(trial.nonzeros, size / 2, _ROUGH)
    trial.restore()
    return step if step < math.inf else None


def cut_(
    moves: Sequence[Move], take: Take, size: Callable[[], float], asked: float, unit_costs: Sequence[float] = ()
) -> None:
    """Set weights to zero until the size is at most `asked`, and as little below as possible.

    Args:
        moves: the proximal steps that the optimizer's present step sizes give, for a strength of 1.
        take: takes proximal steps.
        size: the present size of the network.
        asked: the size to reach.
        unit_costs: what a unit of each move's weight counts at most. Without them the room that large units leave
            is not filled.
    """
    if size() <= asked:
        return
    trial = _Trial(moves, take)
    trial.cut(size, asked)
    largest_first = sorted(range(len(unit_costs)), key=lambda index: -unit_costs[index])
    for index in largest_first[:_MOST_FILLED]:
        if size() >= _CLOSE * asked:
            return
        trial.keep_zeros(index)
        trial.cut(size, asked)


class _Trial:
    """Weights on which proximal steps are tried."""

    def __init__(self, moves: Sequence[Move], take: Take) -> None:
        # Without a learning rate there is no step size to go by: all weights alike.
        still = all(isinstance(move.step, float | int) and move.step == 0 for move in moves)
        self._moves = [move._replace(step=1.0) for move in moves] if still else list(moves)
        self._take = take
        self._before = [move.weight.detach().clone() for move in moves]
        self._low: list[Tensor] = []  # where weights are not zero whatever ties are
        self._rank: list[Tensor] = []  # of the ties, by magnitude; elsewhere the largest number
        self._kept: dict[int, Tensor] = {}  # weights whose zeros do not change any more: where they are not zero
        self.ties = 0

    def restore(self) -> None:
        """The weights as they were, except for zeros that are kept."""
        for move, before in zip(self._moves, self._before, strict=True):
            move.weight.copy_(before)
        self._zero_again()

    def keep_zeros(self, index: int) -> None:
        """Keep the present zeros of one weight."""
        self._kept[index] = self._moves[index].weight != 0

    def cut(self, size: Callable[[], float], asked: float) -> None:
        """Take the shortest step after which the size is at most `asked`, to one weight."""
        low, high = self.bracket(size, asked)
        self.order_between(low, high)
        first, last = -1, self.ties  # with this many ties at zero the size is too large, and small enough
        while last - first > 1:
            middle = (first + last) // 2
            self.zero(middle)
            first, last = (first, middle) if size() <= asked else (middle, last)
        self.zero(last)

    def _zero_again(self) -> None:
        for index, kept in self._kept.items():
            self._moves[index].weight.copy_(torch.where(kept, self._before[index], 0.0))

    def nonzeros(self) -> float:
        """The number of non-zero weights."""
        return float(sum(int(torch.count_nonzero(move.weight)) for move in self._moves))

    def step(self, step: float) -> None:
        """Take a proximal step from the weights as they were; an infinite one leaves zeros only."""
        self.restore()
        if step == math.inf:
            for move in self._moves:
                move.weight.zero_()
        elif step > 0:
            self._take([move._replace(step=step * move.step) for move in self._moves])
        self._zero_again()

    def bracket(self, size: Callable[[], float], asked: float, bisections: int = _BISECTIONS) -> tuple[float, float]:
        """Two neighbouring steps: after the first, 0 or more, the size is above `asked`; after the second it is not."""
        self.restore()
        low, high = 0.0, math.inf
        many, few = self.nonzeros(), 0.0
        smallest, largest = _EXPONENTS
        for _ in range(bisections):
            if many - few <= 1:
                break
            middle = (smallest + largest) / 2
            self.step(2.0**middle)
            left = self.nonzeros()
            if size() <= asked:
                high, largest, few = 2.0**middle, middle, left
            else:
                low, smallest, many = 2.0**middle, middle, left
        return low, high

    def order_between(self, low: float, high: float) -> None:
        """Rank the weights that become zero between two steps by their magnitude after the first."""
        self.step(low)
        magnitudes = [move.weight.detach().abs() for move in self._moves]
        self.step(high)
        self._low = [move.weight.detach() != 0 for move in self._moves]
        tied = [(magnitude > 0) & ~kept for magnitude, kept in zip(magnitudes, self._low, strict=True)]
        self.ties = sum(int(mask.sum()) for mask in tied)
        values = torch.cat([m[mask].double().cpu() for m, mask in zip(magnitudes, tied, strict=True)])
        ranks = torch.empty(self.ties, dtype=torch.long)
        ranks[values.argsort(stable=True)] = torch.arange(self.ties)
        ends = [0, *torch.tensor([int(mask.sum()) for mask in tied]).cumsum(0).tolist()]
        self._rank = []
        for (first, last), mask in zip(pairwise(ends), tied, strict=True):
            rank = torch.full(mask.shape, -1, dtype=torch.long, device=mask.device)
            rank[mask] = ranks[first:last].to(mask.device)
            self._rank.append(rank)

    def zero(self, ties: int) -> None:
        """The weights as they were, with the zeros of the second step except for the largest of the ties."""
        for move, before, kept, rank in zip(self._moves, self._before, self._low, self._rank, strict=True):
            move.weight.copy_(torch.where(kept | (rank >= ties), before, 0.0))
