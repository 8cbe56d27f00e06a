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

If the size falls far below the one asked for all the same, the connections of most units went through the few weights
that became zero last. Then the zeros of their tensors are kept as they were before, and the others are cut further.

No weight is emptied as long as the others can lose as much, because mostly nothing would pass through the network any
more: one that the step would empty keeps the zeros of the longest step that does not. In a branch beside a skip
connection this leaves a unit that could have gone.

Of weights that are spread over processes all processes count together. The ties are ordered over the whole weight. If
it is sharded it is gathered for that, one weight after the other and once in a training; the stages of a pipeline send
the magnitudes of their ties.

Only the zeros of that step are taken. The weights that remain keep their values: shrinking them would change the
network more than the zeros do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from gossamer.layers import RemoteWeight, Stage, gathered, gathered_mask, local_part, own_part
from gossamer.proximal.fused import Move
from gossamer.regularizers.shards import total_over_shards

__all__ = ["MISSED", "cut_", "step_to_half"]

Take = Callable[[list[Move]], None]

_EXPONENTS = (-60.0, 100.0)  # steps from 2^-60 to 2^100
_BISECTIONS = 40
_ROUGH = 14  # bisections to a hundredth of an octave
_CLOSE = 0.99  # of the size that was asked for: not worth filling
_MOST_FILLED = 8  # weights whose zeros are kept in turn
MISSED = 0.75
"""Below this part of the size that was asked for, the network has lost more than one unit of a few."""
_MOST_SPARED = 4


def step_to_half(moves: Sequence[Move], take: Take, stage: Stage | None = None) -> float | None:
    """The proximal step that sets half of a weight tensor to zero, and no more than half of any other one.

    Half of the network would not do: where costs or group sizes differ, one layer is gone before that. None if no step
    sets that many to zero. The weights are restored.
    """
    trial = _Trial(moves, take, stage)
    counts = trial.counts()
    _, step = trial.bracket(lambda: min(_parts(trial.counts(), counts), default=0.0), 0.5, _ROUGH)
    trial.restore()
    return step if step < math.inf else None


def _parts(left: Sequence[int], full: Sequence[int]) -> list[float]:
    return [part / whole for part, whole in zip(left, full, strict=True) if whole]


def cut_(
    moves: Sequence[Move],
    take: Take,
    size: Callable[[], float],
    asked: float,
    unit_costs: Sequence[float] = (),
    stage: Stage | None = None,
) -> None:
    """Set weights to zero until the size is at most `asked`, and as little below as possible.

    Args:
        moves: the proximal steps that the optimizer's present step sizes give, for a strength of 1.
        take: takes proximal steps.
        size: the present size of the network.
        asked: the size to reach.
        unit_costs: what a unit of each move's weight counts at most. Without them the room that large units leave
            is not filled.
        stage: what this process has of a pipeline; the moves are then those of all stages.
    """
    if size() <= asked:
        return
    trial = _Trial(moves, take, stage)
    trial.cut(size, asked)
    trial.fill(size, asked, unit_costs)
    closest, zeros = size(), trial.copy()
    for _ in range(_MOST_SPARED):
        if size() >= MISSED * asked or not trial.spare_last(size, asked):
            break
        trial.cut(size, asked)
        trial.fill(size, asked, unit_costs)
        if size() > closest:
            closest, zeros = size(), trial.copy()
    trial.put(zeros)


class _Trial:
    """Weights on which proximal steps are tried."""

    def __init__(self, moves: Sequence[Move], take: Take, stage: Stage | None = None) -> None:
        # Without a learning rate there is no step size to go by: all weights alike.
        still = all(isinstance(move.step, float | int) and move.step == 0 for move in moves)
        self._moves = [move._replace(step=1.0) for move in moves] if still else list(moves)
        self._take = take
        self._stage = stage
        self._parts = [local_part(move.weight.detach()) for move in moves]  # those of this process
        self._before = self.copy()
        self._low: list[Tensor] = []  # where weights are not zero whatever ties are
        self._rank: list[Tensor] = []  # of the ties, by magnitude; elsewhere the largest number
        self.kept: dict[int, Tensor] = {}  # weights whose zeros do not change any more: where they are not zero
        self.ties = 0

    def restore(self) -> None:
        """The weights as they were, except for zeros that are kept."""
        self.put(self._before)
        self._zero_again()

    def copy(self) -> list[Tensor]:
        """The weights as they are."""
        return [part.clone() for part in self._parts]

    def put(self, weights: list[Tensor]) -> None:
        """Set the weights to what `copy` gave."""
        for part, own in zip(self._parts, weights, strict=True):
            part.copy_(own)

    def keep_zeros(self, index: int) -> None:
        """Keep the present zeros of one weight."""
        self.kept[index] = self._parts[index] != 0

    def cut(self, size: Callable[[], float], asked: float) -> None:
        """Take the shortest step after which the size is at most `asked`, to one weight."""
        low, high = self.bracket(size, asked)
        while self._spare_emptied(high, size, asked):
            low, high = self.bracket(size, asked)
        self.order_between(low, high)
        first, last = -1, self.ties  # with this many ties at zero the size is too large, and small enough
        while last - first > 1:
            middle = (first + last) // 2
            self.zero(middle)
            first, last = (first, middle) if size() <= asked else (middle, last)
        self.zero(last)

    def fill(self, size: Callable[[], float], asked: float, unit_costs: Sequence[float]) -> None:
        """Keep the zeros of the weight with the largest units, then of the next, and give back others as they fit."""
        kept = dict(self.kept)
        largest_first = sorted(range(len(unit_costs)), key=lambda index: -unit_costs[index])
        for index in largest_first[:_MOST_FILLED]:
            if size() >= _CLOSE * asked:
                break
            self.keep_zeros(index)
            self.cut(size, asked)
        self.kept = kept

    def spare_last(self, size: Callable[[], float], asked: float) -> bool:
        """Keep the zeros of the weights by which the size is reached, as they are just before.

        False if the others cannot lose as much.
        """
        low, high = self.bracket(size, asked)
        self.step(high)
        fewer = self.counts()
        self.step(low)
        for index, (many, few) in enumerate(zip(self.counts(), fewer, strict=True)):
            if many > few:
                self.keep_zeros(index)
        self.step(math.inf)
        return size() <= asked

    def _spare_emptied(self, step: float, size: Callable[[], float], asked: float) -> bool:
        """Keep the zeros of the weights that a step would empty first, as they are just before.

        False if no weight would be emptied, or the others cannot lose as much.
        """
        self.restore()
        full = self.counts()
        self.step(step)
        if not self._emptied(full):
            return False
        low, high = self.bracket(lambda: -len(self._emptied(full)), -1)
        self.step(high)
        emptied, kept = self._emptied(full), dict(self.kept)
        self.step(low)
        for index in emptied:
            self.keep_zeros(index)
        self.step(math.inf)
        if size() > asked:
            self.kept = kept
            return False
        return True

    def _emptied(self, full: Sequence[int]) -> list[int]:
        """Which weights have no non-zero left, but had some."""
        counts = zip(self.counts(), full, strict=True)
        return [index for index, (left, had) in enumerate(counts) if had and not left and index not in self.kept]

    def _zero_again(self) -> None:
        for index, kept in self.kept.items():
            self._parts[index].copy_(torch.where(kept, self._before[index], 0.0))

    def nonzeros(self) -> float:
        """The number of non-zero weights, of all processes."""
        return float(sum(self.counts()))

    def counts(self) -> list[int]:
        """The number of non-zeros of each weight, of all processes."""
        pairs = zip(self._moves, self._parts, strict=True)
        counts = [int(total_over_shards(move.weight, part.count_nonzero())) for move, part in pairs]
        if self._stage is None:
            return counts
        return list(map(int, self._stage.each([move.rule.weight for move in self._moves], counts)))

    def step(self, step: float) -> None:
        """Take a proximal step from the weights as they were; an infinite one leaves zeros only."""
        self.restore()
        if step == math.inf:
            for part in self._parts:
                part.zero_()
        elif step > 0:
            self._take([move._replace(step=step * move.step) for move in self._moves])
        self._zero_again()

    def bracket(self, size: Callable[[], float], asked: float, bisections: int = _BISECTIONS) -> tuple[float, float]:
        """Two neighbouring steps: after the first, 0 or more, the size is above `asked`; after the second it is not.

        The zeros after a step are among those after any longer one. As many non-zeros as after a step that was tried
        are therefore the same ones, and of the same size.
        """
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
            known = (low > 0 and left == many) or (high < math.inf and left == few)
            if left == few if known else size() <= asked:
                high, largest, few = 2.0**middle, middle, left
            else:
                low, smallest, many = 2.0**middle, middle, left
        return low, high

    def order_between(self, low: float, high: float) -> None:
        """Rank the weights that become zero between two steps by their magnitude after the first."""
        self.step(low)
        magnitudes = [part.abs() for part in self._parts]
        self.step(high)
        self._low = [part != 0 for part in self._parts]
        tied = [(magnitude > 0) & ~kept for magnitude, kept in zip(magnitudes, self._low, strict=True)]
        values = self._of_stages([self._of_whole(*own) for own in zip(self._moves, magnitudes, tied, strict=True)])
        self.ties = sum(map(len, values))
        ranks = torch.empty(self.ties, dtype=torch.long)
        ranks[torch.cat(values).argsort(stable=True)] = torch.arange(self.ties)
        split = torch.split(ranks, [len(own) for own in values])
        self._rank = [self._ranked(*own) for own in zip(self._moves, tied, split, strict=True)]

    def _of_stages(self, values: list[Tensor]) -> list[Tensor]:
        """The values of each weight, from the process that has it."""
        if self._stage is None:
            return values
        names = [move.rule.name for move in self._moves]
        found = self._stage.merged({name: own for name, own in zip(names, values, strict=True) if len(own)})
        return [found.get(name, own) for name, own in zip(names, values, strict=True)]

    @staticmethod
    def _of_whole(move: Move, magnitude: Tensor, tied: Tensor) -> Tensor:
        """The magnitudes of the ties of a weight, in the order of the whole weight."""
        if not int(total_over_shards(move.weight, tied.sum())):
            return torch.zeros(0, dtype=torch.float64)
        mask = gathered_mask(tied, move.weight)
        return gathered(magnitude, move.weight)[mask].double().cpu()

    @staticmethod
    def _ranked(move: Move, tied: Tensor, ranks: Tensor) -> Tensor:
        """The rank of each tie in this process, -1 elsewhere."""
        if not len(ranks) or isinstance(move.rule.weight, RemoteWeight):
            return torch.full(tied.shape, -1, device=tied.device)
        mask = gathered_mask(tied, move.weight)
        rank = torch.full(mask.shape, -1, device=mask.device)
        rank[mask] = ranks.to(mask.device)
        return own_part(rank, move.weight)

    def zero(self, ties: int) -> None:
        """The weights as they were, with the zeros of the second step except for the largest of the ties."""
        for part, before, kept, rank in zip(self._parts, self._before, self._low, self._rank, strict=True):
            part.copy_(torch.where(kept | (rank >= ties), before, 0.0))
