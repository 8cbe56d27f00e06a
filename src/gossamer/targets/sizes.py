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

from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn

from gossamer.errors import GossamerError
from gossamer.layers import Weight, find_weights, is_sharded, local_part, multiply_adds, require_supported, whole
from gossamer.measurement import compact_part
from gossamer.regularizers import Regularizer
from gossamer.regularizers.shards import total_over_shards
from gossamer.shrinking import Remaining, take
from gossamer.store import read_manifest, save
from gossamer.targets.target import Kind, Target

__all__ = ["Size"]

_CHECKSUM_DIGITS = 10
_ALIGNMENT = 16  # of the header, and digits of its own checksum
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
        self.remaining = _remaining(target.kind, regularizer)
        self._costs = _costs(target.kind, regularizer)
        self._rest = 0.0  # of a file, besides non-zeros
        if target.kind == "bytes":
            self._rest = self._without_regularized_weights()
            self.full = self.exact()
        else:
            self.full = sum(cost * weight.parameter.numel() for weight, cost in self._costs)

    @property
    def asked(self) -> float:
        """The size to reach."""
        return self.target.asked(self.full)

    @property
    def counts_units(self) -> bool:
        """Whether whole units count, and not single weights."""
        return self.target.kind in ("dense_params", "dense_flops")

    def unit_cost(self, weight: Weight) -> float:
        """What one output unit of a weight counts in the full network."""
        cost = next((cost for own, cost in self._costs if own.parameter is weight.parameter), 0.0)
        return cost * weight.parameter.numel() / weight.layout.count("outputs")

    def largest_unit(self) -> float:
        """The largest share that one output unit has in the present size, on average over its layer."""
        parts = self._parts()
        shares = [part / _units(weight) for part, (weight, _) in zip(parts, self._costs, strict=True) if part > 0]
        return max(shares) / sum(parts) if shares else 0.0

    def smallest(self) -> float:
        """The smallest size at which the network can still depend on its input: one weight, or unit, in each layer."""
        if self.target.kind == "bytes":
            return self._rest
        if self.counts_units:
            return self._without_regularized_weights()
        regularized = {rule.weight.parameter for rule in self._rules}
        return sum(
            cost * (1 if weight.parameter in regularized else weight.parameter.numel()) for weight, cost in self._costs
        )

    @torch.no_grad()
    def estimate(self) -> float:
        """The present size, up to the error of the factor."""
        return self.factor * self._quick()

    @torch.no_grad()
    def exact(self) -> float:
        """The present size; the estimate is calibrated by it."""
        size, quick = self._exact(), self._quick()
        if size > 0 and quick > 0:
            self.factor = size / quick
        return size

    @torch.no_grad()
    def verified(self) -> float | None:
        """The size of what `shrink` really leaves, where whole units or a file count; None elsewhere."""
        if self.remaining is None or not (self.counts_units or self.target.kind == "bytes"):
            return None
        small = self.remaining.verified()
        if self.target.kind == "bytes":
            return _file_size(small)
        left = {weight.name: weight.parameter.numel() for weight in find_weights(small)}
        return sum(cost * left[weight.name] for weight, cost in self._costs)

    def _exact(self) -> float:
        if self.remaining is None:
            return sum(cost * _nonzeros(weight.parameter) for weight, cost in self._costs)
        if self.target.kind == "bytes":
            return _file_size(self.remaining.network())
        kept = self.remaining.kept()
        total = 0.0
        for weight, cost in self._costs:
            left = take(weight.parameter.detach(), kept.get(weight.parameter, {}))
            total += cost * (left.numel() if self.counts_units else _nonzeros(left))
        return total

    def _quick(self) -> float:
        return self._rest + sum(self._parts())

    def _parts(self) -> list[float]:
        """The estimate of each weight."""
        if self.counts_units:
            return [cost * weight.parameter.numel() * compact_part(weight) for weight, cost in self._costs]
        return [cost * _nonzeros(weight.parameter) for weight, cost in self._costs]

    @torch.no_grad()
    def _without_regularized_weights(self) -> float:
        """The size with all weights of the regularizer at zero; they are restored."""
        weights = [rule.weight.parameter for rule in self._rules]
        before = [weight.detach().clone() for weight in weights]
        try:
            for weight in weights:
                weight.zero_()
            return self._exact()
        finally:
            for weight, values in zip(weights, before, strict=True):
                weight.copy_(values)


def _remaining(kind: Kind, regularizer: Regularizer) -> Remaining | None:
    model, example = regularizer.model, regularizer.example
    if any(is_sharded(rule.weight.parameter) for rule in regularizer.rules):
        _require_countable(kind)
        return None
    if model is not None and example is not None:
        remaining = Remaining(model, example)
        try:
            remaining.kept()
        except GossamerError:  # a model that cannot be exported
            if kind not in ("params", "flops"):
                raise
            return None
        return remaining
    if kind == "params":
        return None
    raise GossamerError(
        f"`Target({kind}=...)` counts what the network computes on an input. Give the regularizer one: "
        "gossamer.integrated_tl1(model, example=x)."
    )


def _require_countable(kind: Kind) -> None:
    if kind not in ("params", "flops"):
        raise GossamerError(
            f"`Target({kind}=...)` counts what `shrink` leaves of the whole model, and the weights of this one are "
            "sharded (DTensor): each process has a part. Use `Target(params=...)` or `Target(flops=...)`, which count "
            "the weights that are not zero, or DistributedDataParallel."
        )


def _costs(kind: Kind, regularizer: Regularizer) -> list[tuple[Weight, float]]:
    """The weights of the model, each with what one of its entries counts."""
    model, example = regularizer.model, regularizer.example
    if model is None:
        return [(rule.weight, 1.0) for rule in regularizer.rules]
    weights = find_weights(model, example)
    for weight in weights:
        require_supported(weight)
    if kind == "bytes":
        return [(weight, float(weight.parameter.element_size() + _POSITION)) for weight in weights]
    if kind in ("params", "dense_params"):
        return [(weight, 1.0) for weight in weights]
    assert example is not None
    macs = multiply_adds(model, example)
    return [
        (weight, macs.get(weight.parameter, 0) / max(weight.parameter.numel(), 1))
        for weight in weights
        if macs.get(weight.parameter, 0)
    ]


def _file_size(model: nn.Module) -> float:
    """The size of the sparse file of a model, with all digits that checksums may have: they change with the weights."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "network.safetensors")
        save(model, file, sparse=True)
        checksums = [record.checksum for record in read_manifest(file).tensors.values()]
        missing = sum(_CHECKSUM_DIGITS - len(str(checksum)) for checksum in checksums)
        return file.stat().st_size + missing + _ALIGNMENT


def _units(weight: Weight) -> int:
    """Output units that are not zero."""
    present = whole(weight.parameter.detach() != 0)
    return int(weight.layout.as_groups(present, "outputs").any(dim=-1).sum())


def _nonzeros(tensor: Tensor) -> int:
    """The number of non-zeros, of all processes where the tensor is sharded."""
    return int(total_over_shards(tensor, torch.count_nonzero(local_part(tensor.detach()))))
