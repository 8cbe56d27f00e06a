"""Where the weights of a regularizer stand in the parameter groups of an optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import nn
from torch.optim import Optimizer

from gossamer.layers import Weight
from gossamer.proximal.metric import ParameterGroup
from gossamer.regularizers import Rule

__all__ = ["Place", "Places"]


class Place(NamedTuple):
    """A weight that the optimizer has just stepped, its rule and its parameter group."""

    rule: Rule
    weight: nn.Parameter
    group: ParameterGroup


class Places:
    """The places, looked up once; at every step it is only checked that each weight is still there.

    Groups are replaced when a checkpoint is loaded, parameters when units are removed.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules
        self._places: list[tuple[Rule, int, int]] = []
        self._size = -1

    def stepped(self, optimizer: Optimizer) -> list[Place]:
        """The weights that the optimizer has stepped: those of its parameters that have a gradient."""
        groups = optimizer.param_groups
        found = self._found(groups)
        if found is None:
            self._look_up(groups)
            found = self._found(groups)
            assert found is not None
        return found

    def _found(self, groups: list[ParameterGroup]) -> list[Place] | None:
        """None where a weight is not at its place."""
        if self._size != sum([len(group["params"]) for group in groups]):
            return None
        found = []
        for rule, group_index, index in self._places:
            group = groups[group_index] if group_index < len(groups) else {"params": ()}
            weight = _parameter(rule.weight)
            if index >= len(group["params"]) or group["params"][index] is not weight:
                return None
            if weight.grad is not None:
                found.append(Place(rule, weight, group))
        return found

    def _look_up(self, groups: list[ParameterGroup]) -> None:
        places = {id(p): (i, j) for i, group in enumerate(groups) for j, p in enumerate(group["params"])}
        owned = [(rule, places.get(id(rule.weight.parameter))) for rule in self._rules]
        self._places = [(rule, *place) for rule, place in owned if place is not None]
        self._size = len(places)


def _parameter(weight: Weight) -> nn.Parameter:
    """`weight.parameter`, without its detours for the common case."""
    parameter = weight.module._parameters.get(weight.attribute)
    return weight.parameter if parameter is None else parameter
