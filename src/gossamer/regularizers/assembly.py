"""From the rules of a recipe to a regularizer: terms on units become terms of the whole model.

A recipe gives each weight its terms. A term with `groups="units"` has no group inside one weight. Its coefficient on a
unit is the mean over the weights that the unit holds, times the root of the unit's size if the recipe scales by size.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor, nn

from gossamer.errors import GossamerError
from gossamer.layers import Weight, find_weights, is_parameter, is_sharded, original_module
from gossamer.regularizers.kept_norms import KeptNorm
from gossamer.regularizers.regularizer import Regularizer, Rule, Term, require_strength
from gossamer.regularizers.selection import LayerOptions
from gossamer.regularizers.units import Slices, Units, UnitTerm, require_trained
from gossamer.shrinking import StandIn
from gossamer.shrinking.units import NONE, UnitMap, find_units

__all__ = ["assemble"]

_NORMS = (
    nn.modules.batchnorm._NormBase,
    nn.GroupNorm,
    nn.LayerNorm,
    nn.RMSNorm,
)


def assemble(
    model: nn.Module, strength: float | None, rules: Iterable[Rule], options: LayerOptions, *, by_size: bool = False
) -> Regularizer:
    """The regularizer of these rules, analysed with the example where units or kept norms need it."""
    require_strength(strength)
    model = original_module(model)
    built = _assembled(model, strength, tuple(rules), options, by_size=by_size)
    example = options.get("example")
    return replace(built, model=model, example=example, stand_in=None if example is None else _stand_in(model))


def _stand_in(model: nn.Module) -> StandIn | None:
    """The structure of a model that may be sharded later."""
    several = dist.is_available() and dist.is_initialized()
    if not several or any(is_sharded(parameter) for parameter in model.parameters()):
        return None
    return StandIn.of(model)


def _assembled(
    model: nn.Module, strength: float | None, rules: tuple[Rule, ...], options: LayerOptions, *, by_size: bool
) -> Regularizer:
    on_units = any(term.groups == "units" for rule in rules for term in rule.terms)
    example, keep_norms = options.get("example"), options.get("keep_norms")
    if example is None and on_units:
        raise GossamerError(
            '`groups="units"` needs `example`, what the model is called with: the units are found on its graph. Pass '
            "`example=x`, one batch of inputs."
        )
    if example is None and keep_norms:
        raise GossamerError(
            "`keep_norms=True` needs `example`, what the model is called with: the weights in front of a normalisation "
            "are found on its graph. Pass `example=x`, one batch of inputs."
        )
    wanted = keep_norms is not False and any(isinstance(module, _NORMS) for module in model.modules())
    if example is None or not (on_units or wanted):
        return Regularizer(strength, rules)
    if any(is_sharded(parameter) for parameter in model.parameters()):
        raise GossamerError(
            f"{'Units' if on_units else 'Weights in front of a normalisation'} are found on the graph of the model, "
            "and its weights are sharded (DTensor) already. Create the regularizer before `fully_shard` or "
            "`parallelize_module`: it follows its weights. Or leave out `example`."
        )
    try:
        found = find_units(model, example)
    except GossamerError as error:
        if on_units or keep_norms:
            what = '`groups="units"`' if on_units else "`keep_norms=True`"
            raise GossamerError(f"{what} needs the graph of the model. {error}") from error
        note = f"norms are not kept: the model was not analysed; {error}"
        return Regularizer(strength, rules, Units((), (), (), [note]))
    return _Assembly(model, rules, found, by_size=by_size, keep_norms=keep_norms is not False).build(strength)


class _Assembly:
    """Joins the rules of the chosen weights with the map of units."""

    def __init__(
        self, model: nn.Module, rules: tuple[Rule, ...], found: UnitMap, *, by_size: bool, keep_norms: bool
    ) -> None:
        self.model, self.rules, self.found = model, rules, found
        self.by_size, self.keep_norms = by_size, keep_norms
        self.named = dict(model.named_parameters(remove_duplicate=False))
        self.rule_of = {id(rule.weight.parameter): rule for rule in rules}
        self.weights = {id(p): rule.weight for rule in rules for p in [rule.weight.parameter]}
        self.reasons = {
            axis: ", ".join(f"{count} {reason}" for reason, count in why.items()) for axis, why in found.reasons.items()
        }
        self.terms = next((own for rule in rules if (own := _unit_terms(rule))), ())

    def build(self, strength: float | None) -> Regularizer:
        slices = self.slices() if self.terms else []
        if self.terms and not slices:
            why = "; ".join(f"{axis}: {reason}" for axis, reason in self.reasons.items())
            raise GossamerError(
                f'`groups="units"`: the chosen layers of {type(self.model).__name__} have no units that could be '
                f'removed ({why}). Use groups inside single weights, such as `groups="outputs"`.'
            )
        held = torch.zeros(self.found.count, dtype=torch.long)
        for own in slices:
            if own.holds:
                held += _counts(own.units, self.found.count) * own.size
        terms = [UnitTerm(t.penalty, self.coefficients(i, slices, held)) for i, t in enumerate(self.terms)]
        rules = [replace(rule, terms=tuple(t for t in rule.terms if t.groups != "units")) for rule in self.rules]
        known = {id(rule.weight.parameter) for rule in rules}
        # Further members: biases, scales and shifts. Their rules have no terms of their own.
        further = {id(own.weight.parameter): own.weight for own in slices if own.holds}
        rules += [Rule(weight, ()) for key, weight in further.items() if key not in known]
        return Regularizer(strength, tuple(rules), Units(slices, terms, self.kept_norms(), self.notes()))

    def notes(self) -> list[str]:
        """What the units do not show: what is none of them, and what is not one of its own."""
        joined = self.found.joined.items() if self.terms else ()
        return [
            *(f"not units of their own: {axis}: {reason}" for axis, reason in joined),
            *(f"not covered: {axis}: {reason}" for axis, reason in self.reasons.items()),
        ]

    def slices(self) -> list[Slices]:
        """The axes of all units that can be covered."""
        covered = self.covered()
        found = []
        for axis in self.found.axes:
            units = torch.where((axis.units != NONE) & covered[axis.units], axis.units, NONE)
            parameter = self.named[axis.name]
            chosen = id(parameter) in self.weights
            if bool((units != NONE).any()) and (axis.holds or chosen):
                found.append(Slices(self.weight(axis.name), axis.dim, units, axis.holds, parameter.shape))
        require_trained(found)
        self.require_one_device(found)
        return found

    def covered(self) -> Tensor:
        """Units none of whose weights is left out by `only` or `skip`."""
        covered = torch.ones(self.found.count, dtype=torch.bool)
        layers = {id(weight.parameter) for weight in find_weights(self.model) if is_parameter(weight)}
        left_out = layers - self.weights.keys()
        for axis in self.found.axes:
            if id(self.named[axis.name]) in left_out:
                units = axis.units[axis.units != NONE]
                covered[units] = False
                self.reasons[f"{axis.name}:{axis.dim}"] = f"{len(units)} belong to a layer that is left out"
        return covered

    def require_one_device(self, slices: list[Slices]) -> None:
        where: dict[int, tuple[torch.device, str]] = {}
        for own in slices:
            device = own.weight.parameter.device
            for unit in torch.unique(own.units[own.units != NONE]).tolist():
                other, name = where.setdefault(unit, (device, own.weight.name))
                if other != device:
                    raise GossamerError(
                        f"A unit spans two devices: {name} is on {other}, {own.weight.name} on {device}. Move both "
                        "layers to one device, or leave one of them out by `skip`."
                    )

    def coefficients(self, index: int, slices: list[Slices], held: Tensor) -> Tensor:
        """The mean of scale * coefficient over the weights of each unit, times the root of its size if asked for."""
        total, count = torch.zeros(len(held), dtype=torch.float64), torch.zeros(len(held), dtype=torch.float64)
        for own in slices:
            rule = self.rule_of.get(id(own.weight.parameter))
            if own.holds and rule is not None:
                number = _counts(own.units, len(held)) * own.size
                total += number * rule.scale * _unit_terms(rule)[index].coefficient
                count += number
        mean = torch.where(count > 0, total / count.clamp(min=1), 1.0)
        return mean * held.sqrt() if self.by_size else mean

    def kept_norms(self) -> list[KeptNorm]:
        if not self.keep_norms:
            return []
        chosen = [free for free in self.found.scale_free if id(self.named[free.weight]) in self.weights]
        return [
            KeptNorm(self.weight(free.weight), free.blocks, self.named[free.weight].shape)
            for free in chosen
            if free.blocks.numel()
        ]

    def weight(self, name: str) -> Weight:
        """The weight of a rule, or a further parameter by its name."""
        known = self.weights.get(id(self.named[name]))
        if known is not None:
            return known
        path, _, attribute = name.rpartition(".")
        return Weight(name, self.model.get_submodule(path), attribute)


def _unit_terms(rule: Rule) -> tuple[Term, ...]:
    return tuple(term for term in rule.terms if term.groups == "units")


def _counts(units: Tensor, count: int) -> Tensor:
    return torch.bincount(units[units != NONE], minlength=count)
