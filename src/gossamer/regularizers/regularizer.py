"""A regularizer: the penalties of each weight, with their strengths and groupings.

objective = loss + strength * Omega,   Omega = sum over weights of scale * sum over terms of coefficient * penalty
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gossamer.errors import GossamerError
from gossamer.example import Example
from gossamer.layers import Groups, Layout, Weight, find_weights, is_sharded, local_part
from gossamer.penalties import Penalty, ScalarPenalty
from gossamer.penalties.sums import ROWS
from gossamer.regularizers.shards import shard_of, total_over_shards
from gossamer.regularizers.units import Units
from gossamer.shrinking import StandIn

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

__all__ = ["Regularizer", "Rule", "Term", "require_strength"]


def require_strength(strength: float | None) -> None:
    """Raise `GossamerError` unless the strength is None or a finite number that is not negative."""
    number = isinstance(strength, int | float) and math.isfinite(strength) and strength >= 0
    if not (number or strength is None):
        raise GossamerError(f"`strength` must be finite and not negative; received {strength!r}.")


@dataclass(frozen=True)
class Term:
    """coefficient * penalty, element-wise or, with `groups`, on the weight viewed as (groups, group size).

    Terms on `"units"` are terms of the regularizer, see `Units`.
    """

    penalty: Penalty
    coefficient: float
    groups: Groups | None = None

    def value(self, weight: Tensor, layout: Layout) -> Tensor:
        """coefficient * penalty of `weight`."""
        if is_sharded(weight):
            return self.coefficient * self._sharded_value(weight, layout)
        seen = weight if self.groups is None else layout.as_groups(weight, self.groups)
        return self.coefficient * self.penalty.value(seen)

    def prox(self, weight: Tensor, step: Tensor, layout: Layout) -> Tensor:
        """The proximal step of the term; `step` is a scalar, or has one entry per weight (a diagonal metric)."""
        step = self.coefficient * step
        if self.groups is None:
            return self.penalty.kernel(weight, step)
        seen_step = step if step.dim() == 0 else layout.as_groups(step, self.groups)
        grouped = self.penalty.kernel(layout.as_groups(weight, self.groups), seen_step)
        return layout.from_groups(grouped, self.groups, weight.shape)

    def shard_prox(self, weight: DTensor, part: Tensor, step: Tensor, layout: Layout) -> Tensor:
        """`prox` of the part of a sharded weight that is in this process; `step` is a scalar, or that of the part."""
        step = self.coefficient * step
        if isinstance(self.penalty, ScalarPenalty):
            return self.penalty.kernel(part, step)
        shard = shard_of(weight, layout, self.groups)
        rows, row_steps = shard.as_rows(part), step if step.dim() == 0 else shard.as_rows(step)
        if shard.groups is ROWS:
            moved = self.penalty.kernel(rows, row_steps)
        else:
            moved = self.penalty.split_kernel(rows, row_steps, shard.groups)
        return shard.from_rows(moved, part.shape)

    def can_shard(self, weight: DTensor, layout: Layout) -> bool:
        """Whether the penalty has a proximal step on the groups of a sharded weight."""
        if isinstance(self.penalty, ScalarPenalty) or shard_of(weight, layout, self.groups).groups is ROWS:
            return True
        return type(self.penalty).split_kernel is not Penalty.split_kernel

    def _sharded_value(self, weight: DTensor, layout: Layout) -> Tensor:
        part = local_part(weight)
        if isinstance(self.penalty, ScalarPenalty):
            return total_over_shards(weight, self.penalty.value(part))
        shard = shard_of(weight, layout, self.groups)
        rows = shard.as_rows(part if part.dtype == torch.float64 else part.float())
        if shard.groups is ROWS:
            return shard.total(self.penalty.total(rows))
        return shard.total(self.penalty.split_total(rows, shard.groups))


@dataclass(frozen=True)
class Rule:
    """The terms of one weight, in the order in which their proximal steps are taken."""

    weight: Weight
    terms: tuple[Term, ...]
    scale: float = 1.0

    @property
    def name(self) -> str:
        """The weight's name in the model."""
        return self.weight.name

    def value(self) -> Tensor:
        """scale * sum of the terms."""
        parameter = self.weight.parameter.detach()
        layout = self.weight.layout
        return self.scale * torch.stack([term.value(parameter, layout) for term in self.terms]).sum()

    def prox(self, weight: Tensor, step: Tensor) -> Tensor:
        """One term after the other, as Algorithm 1 of the paper does.

        For l1 with groups this composition is the proximal operator of the sum; for transformed l1 with groups it
        is the paper's step, and not the operator of the sum.
        """
        layout, step = self.weight.layout, self.scale * step
        for term in self.terms:
            weight = term.prox(weight, step, layout)
        return weight

    def shard_prox(self, weight: DTensor, part: Tensor, step: Tensor) -> Tensor:
        """`prox` of the part of a sharded weight that is in this process. All of its processes have to call this."""
        layout, step = self.weight.layout, self.scale * step
        for term in self.terms:
            part = term.shard_prox(weight, part, step, layout)
        return part


@dataclass(frozen=True)
class Regularizer:
    """strength * Omega on the weights of a model; created by `integrated_tl1` and the other recipes.

    `units` has the terms on removable units and the weights that keep their norms. Parameters that belong to units and
    have no term of their own (biases, scales and shifts) have rules without terms.

    Without a strength it needs a target (`gossamer.attach(..., target=...)`). `model` and `example` are those that the
    recipe was given: what a target counts. `stand_in` has the structure of the model, for targets on weights that are
    sharded later. `of_stage`: the rules are those of one pipeline stage.
    """

    strength: float | None
    rules: tuple[Rule, ...]
    units: Units | None = None
    model: nn.Module | None = field(default=None, repr=False, compare=False)
    example: Example | None = field(default=None, repr=False, compare=False)
    stand_in: StandIn | None = field(default=None, repr=False, compare=False)
    of_stage: bool = field(default=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        require_strength(self.strength)
        if not self.rules:
            raise GossamerError("No weight is left to regularize. Choose other layers by `only` and `skip`.")

    def value(self) -> Tensor:
        """Omega of the current weights, without the strength: objective = loss + strength * value()."""
        total = torch.zeros((), dtype=torch.float64) if self.units is None else self.units.value()
        return total + sum(rule.value().to("cpu", torch.float64) for rule in self.rules if rule.terms)

    def owned_by(self, optimizer: Optimizer) -> Regularizer:
        """The part of this regularizer whose weights the optimizer trains, for models with several optimizers."""
        owned = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        rules = tuple(rule for rule in self.rules if id(rule.weight.parameter) in owned)
        if not rules:
            raise GossamerError(f"This {type(optimizer).__name__} trains none of the weights of this regularizer.")
        units = None if self.units is None else self.units.owned_by({id(rule.weight.parameter) for rule in rules})
        return replace(self, rules=rules, units=units)

    def on(self, stage: nn.Module) -> Regularizer:
        """This regularizer on the weights that a pipeline stage has, with the coefficients of the whole model.

        Weights are matched by name, so that the model of this regularizer may be on the meta device.

        Args:
            stage: a part of the model that has its layers under the same names.
        """
        if self.units is not None:
            raise GossamerError(
                "Units reach across stages. Use groups of single weights: 'outputs', 'inputs' or 'taps'."
            )
        weights = {weight.name: weight for weight in find_weights(stage)}
        unknown = sorted(weights.keys() - {rule.name for rule in self.rules})
        rules = tuple(replace(rule, weight=weights[rule.name]) for rule in self.rules if rule.name in weights)
        if not rules:
            raise GossamerError(
                f"The stage has none of the weights of this regularizer; it has {', '.join(unknown)}. Build the stage "
                "with the names of the whole model."
            )
        for own, rule in zip(rules, (rule for rule in self.rules if rule.name in weights), strict=True):
            if own.weight.parameter.shape != rule.weight.parameter.shape:
                raise GossamerError(
                    f"`{own.name}` has the shape {tuple(own.weight.parameter.shape)} in the stage and "
                    f"{tuple(rule.weight.parameter.shape)} in the model of this regularizer. Use the same model."
                )
        return replace(self, rules=rules, model=None, example=None, stand_in=None, of_stage=True)

    def __str__(self) -> str:
        with_terms = [rule for rule in self.rules if rule.terms]
        width = max((len(rule.name) for rule in with_terms), default=0)
        lines = ["strength by target" if self.strength is None else f"strength {self.strength:g}"]
        for rule in with_terms:
            terms = " + ".join(
                f"{rule.scale * term.coefficient:.4g} {term.penalty}" + (f" of {term.groups}" if term.groups else "")
                for term in rule.terms
            )
            lines.append(f"  {rule.name:<{width}}  {terms}")
        return "\n".join([*lines, *([] if self.units is None else self.units.describe())])
