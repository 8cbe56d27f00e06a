"""Input features of a network, selected by groups on its first layer.

A feature is one group: all weights that its input unit sends. From a dense network on, the strength of transformed l1
on the norms of the groups doubles every so many steps, and features leave until at most k are left:

    minimise  loss + lambda_t sum_j rho_a(||W_j||_2),   lambda_t = lambda_0 2^(t / T)

The k features are those that are left, and the largest by norm of those that left last. The l2 norm itself (group
lasso) selects worse: the network makes up for the shrinkage by larger weights in the layers above.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from gossamer.adapters.fitting import Problem
from gossamer.errors import GossamerError
from gossamer.layers import Weight, find_weights
from gossamer.proximal import attach
from gossamer.regularizers import group_transformed_l1

__all__ = ["first_layer", "importances", "keep_features_", "require_sole_reader", "select_features"]

_WARM_UP = 400  # steps without a penalty
_START = 1e-3  # lambda_0: too weak to remove a feature that matters
_DOUBLING = 400  # T, in steps
_SHAPE = 0.5  # a, in units of the mean norm of a group after the warm-up
_LOOK = 20  # steps between two looks at what is left
_LONGEST = 40 * _DOUBLING  # steps; by then the strength has grown by 10^12


def first_layer(network: nn.Module, features: int, example: Tensor) -> Weight:
    """The weight that reads the input features: the first in order of execution, with one input unit for each."""
    first = find_weights(network, example)[0]
    units = first.layout.count("inputs")
    if units != features:
        raise GossamerError(
            f"Features are selected by the inputs of the first layer; `{first.name}` has {units} of them, and the data "
            f"have {features} features. Use a network that starts with a layer on the features."
        )
    return first


@torch.no_grad()
def importances(first: Weight) -> Tensor:
    """The norms of the groups of the features."""
    norms: Tensor = first.layout.as_groups(first.parameter.detach(), "inputs").norm(dim=1)
    return norms


def require_sole_reader(network: nn.Module, first: Weight, inputs: Tensor) -> None:
    """Raise if the network reads the features anywhere but in its first layer."""
    blind = copy.deepcopy(network).eval()
    with torch.no_grad():
        blind.get_parameter(first.name).zero_()
        outputs = blind(inputs)
    if not torch.equal(outputs, outputs[:1].expand_as(outputs)):
        raise GossamerError(
            f"Features cannot be selected by `{first.name}`: the network reads them elsewhere too. Use a network whose "
            "first layer alone reads the features."
        )


@torch.no_grad()
def keep_features_(first: Weight, selected: Tensor) -> RemovableHandle:
    """Set the weights of all other features to zero, and let them stay zero in training until `remove()` is called."""
    parameter, layout = first.parameter, first.layout
    grouped = selected.unsqueeze(1).expand(-1, layout.group_size("inputs"))
    kept = layout.from_groups(grouped, "inputs", tuple(parameter.shape))
    parameter.masked_fill_(~kept, 0.0)
    handle: RemovableHandle = parameter.register_hook(lambda grad: grad * kept)  # type: ignore[no-untyped-call]
    return handle


def select_features(network: nn.Module, problem: Problem, counts: Collection[int]) -> dict[int, Tensor]:
    """For each count, which so many features the network needs most: True for those. The network is used up."""
    first = first_layer(network, problem.inputs.shape[1], problem.inputs[:2])
    require_sole_reader(network, first, problem.inputs[:100])
    optimizer = problem.optimizer(network)
    network.train()
    batches = _endless(problem)
    for _ in range(_WARM_UP):
        problem.step(network, optimizer, next(batches))
    before = left = importances(first)
    shape = _SHAPE * float(before.mean())
    penalty = group_transformed_l1(network, _START, a=shape, groups="inputs", only=[first.name])
    handle = attach(optimizer, penalty, schedule=lambda step: 2.0 ** (step / _DOUBLING))
    found: dict[int, Tensor] = {}
    for step in range(_LONGEST):
        problem.step(network, optimizer, next(batches))
        if step % _LOOK == 0:
            left = importances(first)
            number = int((left > 0).sum())
            found |= {
                count: _largest(before, left, count) for count in counts if number <= count and count not in found
            }
            if len(found) == len(set(counts)):
                break
            before = left
    handle.remove()
    return {count: found[count] if count in found else _largest(before, left, count) for count in counts}


def _largest(before: Tensor, left: Tensor, count: int) -> Tensor:
    """The features that are left, whatever their norms were before, and the largest of those that left last."""
    order = torch.argsort((left > 0) * (before.max() + 1) + before, descending=True, stable=True)
    selected = torch.zeros(len(before), dtype=torch.bool)
    selected[order[:count]] = True
    return selected


def _endless(problem: Problem) -> Iterator[Tensor]:
    while True:
        yield from problem.batches()
