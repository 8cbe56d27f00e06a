"""The size of a network in the unit of a target: counted exactly, and estimated at next to no cost.

    kind           exact                                                 estimate, up to a factor
    params         non-zeros in what `shrink` leaves                     non-zeros
    flops          the same, each non-zero weighted by its MACs          the same
    dense_params   weights that `shrink` leaves                          weights in non-zero rows and columns of a layer
    dense_flops    the same, each weight weighted by its MACs            the same
    bytes          the file of what `shrink` leaves, at most             value and position of each non-zero, and a rest

The factor is the last exact size divided by the estimate at that moment. The MACs of one weight are the number of
positions at which it is used, which does not change when units are removed.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from gossamer.errors import GossamerError
from gossamer.layers import (
    RemoteWeight,
    Weight,
    is_sharded,
    local_part,
    nonzero_mask,
    require_supported,
    weights_with_macs,
)
from gossamer.measurement import compact_part
from gossamer.regularizers import Regularizer
from gossamer.regularizers.shards import total_over_shards
from gossamer.shrinking import Remaining, ShardedRemaining, state_tensors
from gossamer.store import most_bytes
from gossamer.targets.target import Kind, Target

__all__ = ["Size"]

_POSITION = 1  # bytes that the sparse encoding needs for the position of a non-zero, nearly always


class Size:
    """The size of the model of a regularizer in the unit of a target.

    Attributes:
        full: size of the full network, to which fractions refer.
        factor: what the quick estimate is multiplied by.
        remaining: what `shrink` leaves; None without an example.
    """

    def __init__(self, target: Target, regularizer: Regularizer) -> None:
        self.target = target
        self.factor = 1.0
        self._rules = regularizer.rules
        self._stage = regularizer.stage
        if self._stage is not None:
            self._stage.require()
        self.remaining = _remaining(target.kind, regularizer)
        self._costs = _costs(target.kind, regularizer)
        self._named = {} if self.remaining is None else _named(self.remaining, self._costs)
        self._rest = 0.0  # of a file, besides non-zeros
        if target.kind == "bytes":
            self._rest = self._without_regularized_weights()
            self.full = self.calibrate()
        else:
            self.full = sum(cost * weight.shape.numel() for weight, cost in self._costs)

    @property
    def asked(self) -> float:
        """The size to reach."""
        return self.target.asked(self.full)

    @property
    def counts_units(self) -> bool:
        """Whether whole units count, and not single weights."""
        return self.target.kind in ("dense_params", "dense_flops")

    def unit_cost(self, weight: Weight) -> float:
        """What one output unit of a weight counts in the full network; 0 for biases and scales, which do not count."""
        for own, cost in self._costs:
            if own.parameter is weight.parameter:
                return cost * own.shape.numel() / own.layout.count("outputs")
        return 0.0

    def largest_unit(self) -> float:
        """The largest share that one output unit has in the present size, on average over its layer."""
        parts = self._parts()
        shares = [part / units for part, units in zip(parts, self._of_all(_units), strict=True) if part > 0]
        return max(shares) / sum(parts) if shares else 0.0

    def smallest(self) -> float:
        """The smallest size at which the network can still depend on its input: one weight, or unit, in each layer."""
        if self.target.kind == "bytes":
            return self._rest
        if self.counts_units:
            return self._without_regularized_weights()
        regularized = {rule.weight.parameter for rule in self._rules}
        return sum(
            cost * (1 if weight.parameter in regularized else weight.shape.numel()) for weight, cost in self._costs
        )

    @torch.no_grad()
    def estimate(self) -> float:
        """The present size, up to the error of the factor."""
        return self.factor * self._quick()

    @torch.no_grad()
    def exact(self) -> float:
        """The present size."""
        if self.remaining is None:
            return sum(self._parts())
        return self.remaining.evaluate(self._left)

    @torch.no_grad()
    def calibrate(self) -> float:
        """The present size; the estimate is calibrated by it."""
        size, quick = self.exact(), self._quick()
        if size > 0 and quick > 0:
            self.factor = size / quick
        return size

    @torch.no_grad()
    def verified(self) -> float | None:
        """The size of what `shrink` really leaves, where whole units or a file count; None elsewhere."""
        if self.remaining is None or not (self.counts_units or self.target.kind == "bytes"):
            return None
        return self.remaining.evaluate(lambda whole: self._of(whole.verified()))

    def _of(self, network: nn.Module) -> float:
        """The size of a network from which nothing can be removed any more, where whole units or a file count."""
        if self.target.kind == "bytes":
            return float(most_bytes(network) + self.target.other_bytes)
        tensors = state_tensors(network)
        return sum(cost * tensors[name].numel() for name, cost in self._named.items())

    def _left(self, whole: Remaining) -> float:
        """The size of what `shrink` would leave of a whole model."""
        if self.target.kind == "bytes":
            return self._of(whole.network())
        parts = whole.parts(self._named)
        count = Tensor.numel if self.counts_units else _nonzeros
        return sum(cost * count(parts[name]) for name, cost in self._named.items())

    def _quick(self) -> float:
        return self._rest + sum(self._parts())

    def _parts(self) -> list[float]:
        """The estimate of each weight."""
        sizes = self._of_all(_compact_size if self.counts_units else _nonzero_size)
        return [cost * size for size, (_, cost) in zip(sizes, self._costs, strict=True)]

    def _of_all(self, count: Callable[[Weight], float]) -> list[float]:
        """A count of each weight, in all stages of a pipeline."""
        weights = [weight for weight, _ in self._costs]
        own = [0.0 if isinstance(weight, RemoteWeight) else count(weight) for weight in weights]
        return own if self._stage is None else self._stage.each(weights, own)

    @torch.no_grad()
    def _without_regularized_weights(self) -> float:
        """The size with all weights of the regularizer at zero; they are restored."""
        weights = [local_part(rule.weight.parameter.detach()) for rule in self._rules]
        before = [weight.clone() for weight in weights]
        try:
            for weight in weights:
                weight.zero_()
            return self.exact()
        finally:
            for weight, values in zip(weights, before, strict=True):
                weight.copy_(values)


def _remaining(kind: Kind, regularizer: Regularizer) -> Remaining | ShardedRemaining | None:
    """What counts the weights that `shrink` leaves; None if all non-zeros are counted."""
    model, example = regularizer.model, regularizer.example
    if (model is None and regularizer.stage is None) or example is None:
        if kind == "params":
            return None
        raise GossamerError(
            f"`Target({kind}=...)` counts what the network computes on an input. Give the regularizer one: "
            "gossamer.integrated_tl1(model, example=x)."
        )
    remaining: Remaining | ShardedRemaining
    if model is not None and not any(is_sharded(rule.weight.parameter) for rule in regularizer.rules):
        remaining = Remaining(model, example)
    elif regularizer.stand_in is not None:
        remaining = ShardedRemaining(regularizer.stand_in, example)
    else:
        _require_countable(kind)
        return None
    try:
        remaining.evaluate(lambda whole: whole.parts(()))
    except GossamerError:  # a model that cannot be exported
        if kind not in ("params", "flops"):
            raise
        return None
    return remaining


def _require_countable(kind: Kind) -> None:
    if kind not in ("params", "flops"):
        raise GossamerError(
            f"`Target({kind}=...)` counts what `shrink` leaves of the whole model. The weights of this one are spread "
            "over processes, and its structure is not known: that is copied when a regularizer is created with an "
            "`example` after `init_process_group` and before the model is sharded, or by `on`, if `copy.deepcopy` can "
            "copy the model. Create the regularizer there, or use `Target(params=...)` or `Target(flops=...)`, which "
            "count the weights that are not zero."
        )


def _named(remaining: Remaining | ShardedRemaining, costs: list[tuple[Weight, float]]) -> dict[str, float]:
    """What one entry of each weight counts, by the name of the weight in the model."""
    return {remaining.name_of(weight.parameter): cost for weight, cost in costs}


def _costs(kind: Kind, regularizer: Regularizer) -> list[tuple[Weight, float]]:
    """The weights of the model, each with what one of its entries counts."""
    if regularizer.stage is not None:
        weights = regularizer.stage.weights
    elif regularizer.model is None:
        return [(rule.weight, 1.0) for rule in regularizer.rules]
    else:
        weights = weights_with_macs(regularizer.model, regularizer.example)
    for weight, _ in weights:
        require_supported(weight)
    if kind == "bytes":
        return [(weight, float(weight.parameter.element_size() + _POSITION)) for weight, _ in weights]
    if kind in ("params", "dense_params"):
        return [(weight, 1.0) for weight, _ in weights]
    return [(weight, macs / max(weight.shape.numel(), 1)) for weight, macs in weights if macs]


def _units(weight: Weight) -> int:
    """Output units that are not zero."""
    present = nonzero_mask(weight.parameter)
    return int(weight.layout.as_groups(present, "outputs").any(dim=-1).sum())


def _compact_size(weight: Weight) -> float:
    """Weights in rows and columns that are not zero."""
    return weight.shape.numel() * compact_part(weight)


def _nonzero_size(weight: Weight) -> float:
    return _nonzeros(weight.parameter)


def _nonzeros(tensor: Tensor) -> int:
    """The number of non-zeros, of all processes where the tensor is sharded."""
    return int(total_over_shards(tensor, torch.count_nonzero(local_part(tensor.detach()))))
