"""ZeroRedundancyOptimizer: each process has the optimizer's state of some weights, steps them, and sends them.

A proximal step that needs one weight at a time is taken by the process that has its state, before the weight is sent.
Units and targets need all weights. Their proximal step follows when every process has all of them, and every process
takes the same one. For that, the processes add up two numbers for each weight tensor: its step size, and whether it has
a metric. The metric of an adaptive optimizer is sent by the process that has it: a number for each weight, as many as
ZeroRedundancyOptimizer itself has just sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from gossamer.proximal.metric import Given, Step, StepRule
from gossamer.proximal.places import Place

__all__ = ["Partition"]


class Partition:
    """The optimizer's state, of which each process has a part.

    Args:
        optimizer: the ZeroRedundancyOptimizer.
    """

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer

    @property
    def state(self) -> Mapping[Tensor, Any]:
        """The part in this process."""
        state: Mapping[Tensor, Any] = self._optimizer.optim.state
        return state

    def steps(self, rule: StepRule, places: Sequence[Place]) -> list[Step]:
        """The step of each weight, the same in all processes; all of them have to call this."""
        group, owners = self._optimizer.process_group, self._optimizer._param_to_rank
        own: dict[int, Step] = {}
        numbers = torch.zeros(len(places), 2, dtype=torch.float64, device=self._optimizer._default_device)
        for index, (_, weight, options) in enumerate(places):
            if owners[weight] == dist.get_rank(group):
                own[index] = rule(weight, options, self.state.get(weight, {}))
                numbers[index] = torch.tensor([own[index].size, own[index].metric is not None])
        dist.all_reduce(numbers, group=group)
        found = []
        for index, (size, has_metric) in enumerate(numbers.tolist()):
            metric = None
            if has_metric:
                weight = places[index].weight
                source = dist.get_global_rank(group, owners[weight])
                metric = Given(_sent(own.get(index), weight, source, group))
            found.append(Step(size, metric))
        return found


def _sent(step: Step | None, weight: Tensor, source: int, group: Any) -> Tensor:
    """The inverses 1 / d_i of a weight, from the process that has them."""
    if step is None or step.metric is None:
        values = torch.empty(weight.shape, dtype=weight.dtype, device=weight.device)
    else:
        values = step.metric.inverse().to(weight.dtype).contiguous()
    dist.broadcast(values, source, group)
    return values
