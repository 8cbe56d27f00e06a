"""The places of a regularizer's weights in the parameter groups of an optimizer."""

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
    """A weight that the optimizer has just stepped, with its rule and its parameter group."""

    rule: Rule
    weight: nn.Parameter
    group: ParameterGroup


class Places:
    """The places of all weights: looked up once, then only checked at every step.

    Loading a checkpoint replaces parameter groups; removing units may replace parameters.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules
        self._places: list[tuple[Rule, int, int]] = []  # index of the group, index of the weight in it
        self._size = -1

    def stepped(self, optimizer: Optimizer) -> list[Place]:
        """The weights that the optimizer has stepped: its parameters that have a gradient."""
        groups = optimizer.param_groups
        places = self._checked(groups)
        if places is None:
            self._look_up(groups)
            places = self._checked(groups)
            assert places is not None
        return places

    def _checked(self, groups: list[ParameterGroup]) -> list[Place] | None:
        """None if a weight is not at its place."""
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
        self._size = sum(len(group["params"]) for group in groups)


def _parameter(weight: Weight) -> nn.Parameter:
    """`weight.parameter`, with a shortcut for the common case."""
    parameter = weight.module._parameters.get(weight.attribute)
    return weight.parameter if parameter is None else parameter
