"""The proximal steps of all stages of a pipeline, in the order of the model: what the last cut is found on.

A step of another process has an empty weight here, and is not taken here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gossamer.layers import RemoteWeight
from gossamer.proximal.fused import Move
from gossamer.regularizers import Regularizer

__all__ = ["over_stages"]

Take = Callable[[list[Move]], None]


def over_stages(moves: Sequence[Move], take: Take, regularizer: Regularizer) -> tuple[Sequence[Move], Take]:
    """The steps of all processes, and what takes those of this one. All processes have to call this."""
    if regularizer.stage is None:
        return moves, take
    own = {move.rule.name: move for move in moves}
    steps = regularizer.stage.merged({name: float(move.step) for name, move in own.items()})
    rules = [rule for rule in regularizer.rules if rule.name in steps]
    joined = [own.get(rule.name) or Move(rule, rule.weight.parameter, steps[rule.name]) for rule in rules]
    return joined, lambda some: take([move for move in some if not isinstance(move.rule.weight, RemoteWeight)])
