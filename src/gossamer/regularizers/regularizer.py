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
from gossamer.layers import (
    Groups,
    Layout,
    RemoteWeight,
    Stage,
    Weight,
    is_sharded,
    local_part,
    refuse_flat_parameter,
)
from gossamer.penalties import Penalty, ScalarPenalty
from gossamer.penalties.sums import ROWS
from gossamer.regularizers.shards import shard_of, total_over_shards
from gossamer.regularizers.units import Units
from gossamer.shrinking import StandIn

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
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
    spread over processes later. `stage` is what this process has of a pipeline; rules and units are still those of
    the whole model, and weights of other stages are empty here (`RemoteWeight`).
    """

    strength: float | None
    rules: tuple[Rule, ...]
    units: Units | None = None
    model: nn.Module | None = field(default=None, repr=False, compare=False)
    example: Example | None = field(default=None, repr=False, compare=False)
    stand_in: StandIn | None = field(default=None, repr=False, compare=False)
    stage: Stage | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        require_strength(self.strength)
        if not self.rules:
            raise GossamerError("No weight is left to regularize. Choose other layers by `only` and `skip`.")

    def value(self) -> Tensor:
        """Omega of the current weights, without the strength: objective = loss + strength * value().

        Of weights that are spread over processes it is the value of the whole model; all processes have to call this.
        """
        self.require_not_flat()
        total = torch.zeros((), dtype=torch.float64) if self.units is None else self.units.value()
        here = [rule for rule in self.rules if rule.terms and not isinstance(rule.weight, RemoteWeight)]
        values = [rule.value().to("cpu", torch.float64) for rule in here]
        if self.stage is None:
            return total + sum(values)
        return total + self.stage.total([rule.weight for rule in here], [float(value) for value in values])

    def require_not_flat(self) -> None:
        """Raise `GossamerError` if the model was wrapped in FSDP1 after this regularizer had been created."""
        for weight in (rule.weight for rule in self.rules):
            refuse_flat_parameter(weight.module, weight.attribute, weight.name)

    def owned_by(self, optimizer: Optimizer) -> Regularizer:
        """The part of this regularizer whose weights the optimizer trains, for models with several optimizers."""
        self.require_not_flat()
        owned = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        rules = tuple(
            rule
            for rule in self.rules
            if id(rule.weight.parameter) in owned or isinstance(rule.weight, RemoteWeight)  # theirs is not known
        )
        if self.stage is not None and self.units is not None:
            raise GossamerError(
                "Units of a pipeline reach into other stages, whose optimizers are not known here. Train the weights "
                "of each stage with one optimizer, or choose the layers of each optimizer by `only` before `on`."
            )
        if all(isinstance(rule.weight, RemoteWeight) for rule in rules):
            raise GossamerError(
                f"This {type(optimizer).__name__} trains none of the weights of this regularizer, such as "
                f"`{self.rules[0].name}`, so that the penalty would do nothing. Make both of one model, the optimizer "
                "of the parameters that it has now."
            )
        units = None if self.units is None else self.units.owned_by({id(rule.weight.parameter) for rule in rules})
        return replace(self, rules=rules, units=units)

    def on(self, stage: nn.Module, group: ProcessGroup | None = None) -> Regularizer:
        """This regularizer where each process has one stage of a pipeline: the part for the stage of this process.

        Coefficients, units and targets are those of the whole model. Weights are matched by name, so that the model of
        this regularizer may be on the meta device, unless it is called with an `example`. It is not needed afterwards.

        Args:
            stage: the part of the model in this process, which has its layers under the names of the whole model.
            group: the processes that have the stages; all processes by default. Processes with the same stage
                (data-parallel pipelines) may be among them, unless their weights are sharded.
        """
        if self.model is None:
            raise GossamerError(
                "`on` needs the whole model. Call it on the regularizer that a recipe such as gossamer.integrated_tl1 "
                "returns, once for each stage."
            )
        own = Stage(self.model, stage, group, self.example)
        stand_in = None if self.example is None else self.stand_in or StandIn.of(self.model)
        return replace(
            self,
            rules=tuple(replace(rule, weight=own.locate(rule.weight)) for rule in self.rules),
            units=None if self.units is None else self.units.on(own),
            model=None,
            stand_in=None if stand_in is None else stand_in.on(own),
            stage=own,
        )

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
