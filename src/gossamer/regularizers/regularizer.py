"""A regularizer: the penalties of each weight, with their strengths and groupings.

objective = loss + strength * Omega,   Omega = sum over weights of scale * sum over terms of coefficient * penalty
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gossamer.errors import GossamerError
from gossamer.example import Example
from gossamer.layers import Groups, Layout, Weight
from gossamer.penalties import Penalty
from gossamer.regularizers.units import Units

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


@dataclass(frozen=True)
class Regularizer:
    """strength * Omega on the weights of a model; created by `integrated_tl1` and the other recipes.

    `units` has the terms on removable units and the weights that keep their norms. Parameters that belong to units and
    have no term of their own (biases, scales and shifts) have rules without terms.

    Without a strength it needs a target (`gossamer.attach(..., target=...)`). `model` and `example` are those that the
    recipe was given: what a target counts.
    """

    strength: float | None
    rules: tuple[Rule, ...]
    units: Units | None = None
    model: nn.Module | None = field(default=None, repr=False, compare=False)
    example: Example | None = field(default=None, repr=False, compare=False)

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
