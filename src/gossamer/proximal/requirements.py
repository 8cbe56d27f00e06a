"""What `attach` needs of an optimizer and of the weights of a regularizer; each requirement is an error of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from gossamer.errors import GossamerError
from gossamer.layers import is_sharded
from gossamer.penalties import L1MinusL2, Penalty, ScalarPenalty
from gossamer.proximal.optimizers import is_partition
from gossamer.regularizers import Regularizer

__all__ = ["require_metric", "require_owned", "require_shards", "require_values"]


def require_owned(levels: Sequence[Any], regularizer: Regularizer) -> None:
    """Check that the innermost optimizer has the weights. With ZeRO each process has a part of them."""
    stepping = levels[-2] if len(levels) > 1 and is_partition(levels[-2]) else levels[-1]
    owned = {id(parameter) for group in stepping.param_groups for parameter in group["params"]}
    missing = [
        rule.name
        for rule in regularizer.rules
        if rule.weight.parameter.requires_grad and id(rule.weight.parameter) not in owned
    ]
    if missing and regularizer.units is not None:
        regularizer.units.owned_by(owned)  # an error of its own where a unit spans two optimizers
    if missing:
        raise GossamerError(
            f"The optimizer does not train {', '.join(missing)}. Give it these parameters, or attach "
            "`regularizer.owned_by(optimizer)`, the part of the regularizer that this optimizer trains."
        )


def require_values(regularizer: Regularizer) -> None:
    """Check that no weight is on the meta device."""
    meta = [rule.name for rule in regularizer.rules if rule.weight.parameter.is_meta]
    if meta:
        raise GossamerError(
            f"{', '.join(meta)} is on the meta device and has no values. Materialize and initialize the model first "
            "(`model.to_empty(device=...)`), create the optimizer, then attach."
        )


def require_shards(regularizer: Regularizer) -> None:
    """Check that every penalty has a step on groups that are in several processes."""
    on_units = () if regularizer.units is None else regularizer.units.terms
    for penalty in (term.penalty for term in on_units):
        if not isinstance(penalty, ScalarPenalty) and type(penalty).split_kernel is Penalty.split_kernel:
            raise GossamerError(
                "The weights are spread over processes (DTensor, or the stages of a pipeline), so units are in several "
                f"of them, and {type(penalty).__name__} has no proximal step on such groups. Use another penalty."
            )
    for rule in regularizer.rules:
        weight: Tensor = rule.weight.parameter
        if not is_sharded(weight):
            continue
        for term in rule.terms:
            if not term.can_shard(weight, rule.weight.layout):
                raise GossamerError(
                    f"`{rule.name}` has the placements {weight.placements}, so its groups are in several processes, "
                    f"and {type(term.penalty).__name__} has no proximal step on such groups. Shard the weight along a "
                    "dimension that leaves its groups whole, or use another penalty."
                )


def require_metric(regularizer: Regularizer) -> None:
    """Check that every penalty has a proximal operator in an adaptive metric."""
    names = [rule.name for rule in regularizer.rules if any(isinstance(t.penalty, L1MinusL2) for t in rule.terms)]
    if names:
        raise GossamerError(
            f"`L1MinusL2` on {', '.join(names)}: this penalty has no proximal operator in an adaptive metric. Use "
            "another penalty, or an optimizer that is not adaptive, such as SGD."
        )
