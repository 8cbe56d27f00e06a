"""Warnings about trainings that go wrong in ways that the loss does not show, each given once.

    a layer has one unit left       soon nothing passes through it
    the output is constant          the first layer is zero, or gets no gradient: nothing passes from input to loss
    no zero after a third           the strength is too small
    every weight is scale-free      a normalisation undoes what the penalty does. Scaling such a weight does not change
                                    the loss, so its gradient is orthogonal to it: <w, g> = 0, nearly

Weights that are not finite are an error, raised by the proximal step itself. Of weights that are spread over processes
all processes look together, at sums over the whole weight.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from gossamer.layers import is_sharded, local_part, nonzero_mask
from gossamer.proximal.places import Place
from gossamer.regularizers import Regularizer, Rule
from gossamer.regularizers.shards import total_over_shards

__all__ = ["SparsityWarning", "Watch"]

_LOOKS = 60  # in a training of known length
_STEPS_BETWEEN_LOOKS = 100  # if the length is unknown
_LONG = 6_000  # steps: the length of a training of unknown length, for the lack of zeros
_FEW = 100  # steps in which the lack of zeros says nothing
_IN_SUCCESSION = {"constant": 3, "scale-free": 6}  # other gradients may be nearly orthogonal by chance
_ORTHOGONAL = 1e-4  # the cosine; a normalisation adds a small number to the variance


class SparsityWarning(UserWarning):
    """The training of a sparse network is going wrong: what was seen, the likely cause, and what to change."""


class Watch:
    """Looks at weights and gradients from time to time, before a step of the optimizer.

    Args:
        regularizer: the regularizer in training.
        steps: length of the training; None if it is not known.
        zeros: whether the penalty sets weights to zero.
    """

    def __init__(self, regularizer: Regularizer, steps: int | None, *, zeros: bool = True) -> None:
        weights = [rule for rule in regularizer.rules if _is_weight(rule)]
        self._first: Rule | None = weights[0] if weights else None
        self._last: Rule | None = weights[-1] if weights else None
        self._every = max(1, (steps or _STEPS_BETWEEN_LOOKS * _LOOKS) // _LOOKS)
        self._third = max(_FEW, (steps or _LONG) // 3)
        self._zeros_expected = zeros
        self._given: set[str] = set()
        self._seen = {"constant": 0, "scale-free": 0}

    def is_due(self, step: int) -> bool:
        """Whether to look before the step of this number."""
        return step > 0 and step % self._every == 0

    def look(self, step: int, places: Sequence[Place], *, warming: bool = False) -> None:
        """Look at the weights and their gradients, and warn; while the strength is warming up, not of missing zeros."""
        places = [place for place in places if _is_weight(place.rule)]
        counts = {rule.name: _nonzeros(weight) for rule, weight, _ in places}
        self._last_units(places, counts)
        self._constant_output(places, counts)
        if not warming:
            self._no_zeros(step, places, counts)
        self._scale_free(places)

    def _last_units(self, places: Sequence[Place], counts: dict[str, int]) -> None:
        if "units" in self._given:
            return
        narrow = [
            rule.name
            for rule, weight, _ in places
            # One of the outputs of the network may be left alone, by a bias of the others.
            if (rule is not self._last and _has_one_unit(rule, weight, counts[rule.name])) or counts[rule.name] == 0
        ]
        if narrow:
            self._warn(
                "units",
                f"{', '.join(narrow)} has at most one unit left that is not zero. Without it nothing passes through "
                "the layer, unless a skip connection leads around it. The penalty is too strong for this layer: lower "
                "the strength, ask for a larger target, or give the layer a smaller strength of its own (`strengths`).",
            )

    def _constant_output(self, places: Sequence[Place], counts: dict[str, int]) -> None:
        first = next(((rule, weight) for rule, weight, _ in places if rule is self._first), None)
        gradient = None if first is None else _gradient(first[1])
        if first is None or gradient is None:
            return
        name = first[0].name
        dead = counts[name] == 0 or not _nonzeros(gradient)
        if self._in_succession("constant", dead):
            seen = "is entirely zero" if counts[name] == 0 else "gets a gradient of exactly zero"
            empty = [other for other, count in counts.items() if count == 0]
            cause = f"All weights of {', '.join(empty)} are zero. " if empty else "Units may have died (ReLU). "
            self._warn(
                "constant",
                f"`{name}`, the first layer, {seen}: the output no longer depends on the input through it. {cause}"
                "Lower the strength or the learning rate, ask for a larger target, or start with a warm-up "
                "(`schedule=gossamer.warm_up(steps)`).",
            )

    def _no_zeros(self, step: int, places: Sequence[Place], counts: dict[str, int]) -> None:
        if not self._zeros_expected or step < self._third:
            return
        self._zeros_expected = False
        if places and all(counts[rule.name] == weight.numel() for rule, weight, _ in places):
            self._warn(
                "zeros",
                f"After {step} steps with the penalty no weight is zero. The strength is too small for this loss and "
                "learning rate: raise it tenfold, or ask for a size (`target=gossamer.Target(params=0.05)`).",
            )

    def _scale_free(self, places: Sequence[Place]) -> None:
        if "scale-free" in self._given:
            return
        found = [_is_scale_free(weight) for _, weight, _ in places]
        if self._in_succession("scale-free", bool(found) and all(found)):
            self._warn(
                "scale-free",
                "Every regularized weight is scale-free: a normalisation follows it, so shrinking it does not change "
                "the network, and the penalty only lowers the norms. Penalize the directions instead "
                "(`groups='units'`, `gossamer.unit_tl1`), or weights that no normalisation follows (`only`).",
            )

    def _in_succession(self, key: str, seen: bool) -> bool:
        self._seen[key] = self._seen[key] + 1 if seen else 0
        return self._seen[key] == _IN_SUCCESSION[key]

    def _warn(self, key: str, message: str) -> None:
        if key not in self._given:
            self._given.add(key)
            warnings.warn(message, SparsityWarning, stacklevel=2)


def _is_weight(rule: Rule) -> bool:
    """Whether the rule is that of a weight, and not of a bias or scale that belongs to a unit."""
    return rule.weight.parameter.dim() > 1


def _has_one_unit(rule: Rule, weight: Tensor, nonzeros: int) -> bool:
    layout = rule.weight.layout
    units = layout.count("outputs")
    if units < 2 or nonzeros > layout.group_size("outputs"):
        return False
    return int(layout.as_groups(nonzero_mask(weight), "outputs").any(dim=-1).sum()) <= 1


def _is_scale_free(weight: Tensor) -> bool:
    gradient = _gradient(weight)
    if gradient is None:
        return False
    w, g = local_part(weight).double(), local_part(gradient).double()
    product, *squares = total_over_shards(weight, torch.stack([(w * g).sum(), w.square().sum(), g.square().sum()]))
    norms = squares[0].sqrt() * squares[1].sqrt()
    return bool(norms > 0) and bool(product.abs() <= _ORTHOGONAL * norms)


def _gradient(weight: Tensor) -> Tensor | None:
    """The gradient, spread over processes as the weight is; None if there is none, or a sparse one."""
    gradient = weight.grad
    if gradient is None or gradient.layout is not torch.strided:
        return None
    if is_sharded(gradient) and is_sharded(weight):
        return gradient.redistribute(placements=weight.placements)
    return gradient


def _nonzeros(tensor: Tensor) -> int:
    return int(total_over_shards(tensor, local_part(tensor).count_nonzero()))
