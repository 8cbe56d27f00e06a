"""Measure the step of an optimizer that nobody here knows: along a constant gradient, on a weight of its own.

A copy of the optimizer without state gets one small weight and the same gradient g at every step; the weight is put back
after each. The displacements converge for every optimizer with a memory, and their limit D(g) tells:

    -(D(g) - D(0)) / g   is one number for all weights, the same for 10 g, and proportional to the learning rate:
                         the step size, `factor * lr`. D(0) is what the optimizer does without a gradient (weight decay).
    otherwise            the optimizer is adaptive or normalised, and no strength of a penalty goes with it unless its
                         metric is known.

Only an optimizer whose attributes are plain data is measured: a copy of one that holds a model, another optimizer or a
function might step the real weights.
"""

from __future__ import annotations

import copy
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gossamer.proximal.metric import ParameterGroup, State, Step, StepRule, learning_rate

__all__ = ["NotMeasurable", "measured_rule"]

_LEARNING_RATE = 2.0**-7
_LONGEST = 2000  # steps
_SETTLED = 20  # steps in which the extrapolated limit must not change
_AGREEMENT = 1e-6
# Not settings of the algorithm: the learning rate, and what schedulers and this package write into a group.
_NOT_SETTINGS = {"params", "param_names", "lr", "gossamer", "initial_lr", "max_lr", "min_lr"}


class NotMeasurable(Exception):  # noqa: N818  # a finding, not an error
    """Why there is no step size; the text continues "Lion ..."."""


def measured_rule(optimizer: Optimizer) -> StepRule:
    """The step rule of a linear optimizer: factor * lr, where the factor is measured for each setting of a group.

    Raises:
        NotMeasurable: If the optimizer is not linear in the gradient, or cannot be tried.
    """
    factors: dict[str, float] = {}
    attributes = _plain_attributes(optimizer)
    kind = type(optimizer)

    def factor_of(group: ParameterGroup) -> float:
        settings = {name: value for name, value in group.items() if name not in _NOT_SETTINGS}
        key = repr(sorted(settings.items()))
        if key not in factors:
            factors[key] = _factor(kind, attributes, {**group, **copy.deepcopy(settings)})
        return factors[key]

    def rule(parameter: Tensor, group: ParameterGroup, state: State) -> Step:
        del parameter, state
        return Step(factor_of(group) * learning_rate(group))

    for group in optimizer.param_groups:
        factor_of(group)
    return rule


def _factor(kind: type[Optimizer], attributes: dict[str, Any], group: ParameterGroup) -> float:
    """The step size over the learning rate."""
    if "lr" not in group:
        raise NotMeasurable("has no learning rate `lr` in its parameter groups")
    gradient = torch.tensor([[1.0, -2.0, 0.5], [3.0, -0.25, -1.0]], dtype=torch.float64)

    def size(scale: float, rate: float) -> Tensor:
        moved = _limit(kind, attributes, group, scale * gradient, rate)
        rest = _limit(kind, attributes, group, 0 * gradient, rate)
        return (rest - moved) / (scale * gradient)

    sizes = size(1.0, _LEARNING_RATE)
    expected = float(sizes.flatten()[0])
    if not expected > 0:
        raise NotMeasurable(f"moves a weight by {-expected:g} times a constant gradient")
    if not _agree(sizes, expected):
        raise NotMeasurable("does not move all weights by the same multiple of their gradients")
    if not _agree(size(10.0, _LEARNING_RATE), expected):
        raise NotMeasurable("does not move a weight ten times as far along ten times the gradient")
    if not _agree(size(1.0, _LEARNING_RATE / 2), expected / 2):
        raise NotMeasurable("does not move a weight in proportion to its learning rate")
    return expected / _LEARNING_RATE


def _limit(
    kind: type[Optimizer], attributes: dict[str, Any], group: ParameterGroup, gradient: Tensor, rate: float
) -> Tensor:
    """The displacement of one step along a constant gradient, in the long run."""
    start = torch.tensor([[0.5, -1.0, 2.0], [-0.25, 1.5, 0.75]], dtype=torch.float64)
    weight = nn.Parameter(start.clone())
    step = _steps_of_a_copy(kind, attributes, {**group, "lr": _like(group["lr"], rate), "params": [weight]})
    moves: list[Tensor] = []
    limit, settled = torch.full_like(start, torch.nan), 0
    for _ in range(_LONGEST):
        weight.grad = gradient.clone()
        try:
            step()
        except Exception as error:  # whatever a foreign `step` raises on a weight that is not its own
            raise NotMeasurable(f"cannot be tried on a small weight: {error!r}") from error
        with torch.no_grad():
            moves = [*moves[-2:], weight - start]
            weight.copy_(start)
        before, limit = limit, _extrapolated(moves)
        settled = settled + 1 if bool(((limit - before).abs() <= 1e-9 * limit.abs()).all()) else 0
        if settled >= _SETTLED:
            return limit
    raise NotMeasurable("does not settle to one step along a constant gradient")


def _extrapolated(moves: list[Tensor]) -> Tensor:
    """The limit of a geometric sequence, such as that of momentum, from its last three members (Aitken)."""
    if len(moves) < 3:
        return torch.full_like(moves[-1], torch.nan)
    first, second, third = moves
    bend = (third - second) - (second - first)
    converged = bend.abs() <= 1e-13 * third.abs()
    return torch.where(converged, third, third - (third - second).square() / torch.where(converged, 1.0, bend))


def _steps_of_a_copy(kind: type[Optimizer], attributes: dict[str, Any], group: ParameterGroup) -> Callable[[], Any]:
    """`step` of an optimizer with the same settings, one weight, no state and no hooks."""
    other = object.__new__(kind)
    other.__dict__.update(copy.deepcopy(attributes))
    other.param_groups, other.state = [group], defaultdict(dict)
    step = kind.step
    while getattr(step, "hooked", False):  # hooks for all optimizers are not meant for this one
        step = step.__wrapped__  # type: ignore[attr-defined]
    return lambda: step(other)


def _plain_attributes(optimizer: Optimizer) -> dict[str, Any]:
    """What the optimizer keeps besides its groups, state and hooks; all of it plain data."""
    ours = {"param_groups", "state", "step"}  # schedulers put a `step` of their own on an instance
    attributes = {
        name: OrderedDict() if name.endswith("_hooks") else value
        for name, value in vars(optimizer).items()
        if name not in ours
    }
    for name, value in attributes.items():
        if not _is_plain(value):
            raise NotMeasurable(f"keeps a {type(value).__name__} in `{name}`, so that no copy of it can be tried")
    return attributes


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_is_plain(key) and _is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple | set):
        return all(map(_is_plain, value))
    if isinstance(value, Tensor):
        return not isinstance(value, nn.Parameter) and value.numel() <= 16
    return value is None or isinstance(value, bool | int | float | complex | str | torch.dtype | torch.device)


def _like(template: object, rate: float) -> float | Tensor:
    return torch.tensor(rate, dtype=template.dtype) if isinstance(template, Tensor) else rate


def _agree(sizes: Tensor, expected: float) -> bool:
    return bool(((sizes - expected).abs() <= _AGREEMENT * expected).all())
