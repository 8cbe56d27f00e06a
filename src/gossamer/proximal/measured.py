"""The step size of an unknown optimizer, measured along a constant gradient on a weight of our own.

An empty copy of the optimizer steps one small weight with the same gradient g over and over; the weight is reset after
every step. For an optimizer with a finite memory the displacements converge to a limit D(g):

    -(D(g) - D(0)) / g   is one number for all weights, also for 10 g, and proportional to the learning rate: the step
                         size is factor * lr. D(0) is the displacement by weight decay.
    anything else        the optimizer is adaptive or normalises its steps; its metric is not known.

Only optimizers whose attributes are plain data are measured. A copy of an optimizer that holds a model, another
optimizer or a closure could step the real weights.
"""

from __future__ import annotations

import copy
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gossamer.proximal.metric import ParameterGroup, State, Step, StepRule, learning_rate

__all__ = ["NotMeasurable", "measured_rule"]

_LEARNING_RATE = 2.0**-7
_MAX_STEPS = 2000
_SETTLED = 20  # consecutive steps for which the extrapolated limit must not change
_TOLERANCE = 1e-6
# No settings of the algorithm: what schedulers and this package write into a parameter group.
_NOT_SETTINGS = {"params", "param_names", "lr", "gossamer", "initial_lr", "max_lr", "min_lr"}


class NotMeasurable(Exception):  # noqa: N818  # a result, not an error
    """The reason why there is no step size, as the predicate of a sentence about the optimizer."""


def measured_rule(optimizer: Optimizer) -> StepRule:
    """The step rule factor * lr of an optimizer that is linear in the gradient.

    Raises:
        NotMeasurable: If the optimizer is not linear in the gradient, or a copy of it cannot run.
    """
    factors = _Factors(optimizer)
    for group in optimizer.param_groups:
        factors.of(group)

    def rule(parameter: Tensor, group: ParameterGroup, state: State) -> Step:
        del parameter, state
        return Step(factors.of(group) * learning_rate(group))

    return rule


class _Factors:
    """The measured factors by the settings of a parameter group; settings without effect (counters) are ignored."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._kind = type(optimizer)
        self._attributes = _plain_attributes(optimizer)
        self._factors: dict[str, float] = {}
        self._ignored = set(_NOT_SETTINGS)
        self._last: dict[str, str] = {}

    def of(self, group: ParameterGroup) -> float:
        settings = {name: value for name, value in group.items() if name not in self._ignored}
        described = {name: repr(value) for name, value in settings.items()}
        if _key(described) in self._factors:
            return self._factors[_key(described)]
        factor = _factor(self._kind, self._attributes, {**group, **copy.deepcopy(settings)})
        changed = {name for name, value in described.items() if self._last.get(name, value) != value}
        if changed and factor == self._factors.get(_key(self._last)):
            self._ignored |= changed
            described = {name: value for name, value in described.items() if name not in changed}
        self._last, self._factors[_key(described)] = described, factor
        return factor


def _key(described: dict[str, str]) -> str:
    return repr(sorted(described.items()))


def _factor(kind: type[Optimizer], attributes: dict[str, Any], group: ParameterGroup) -> float:
    """The step size divided by the learning rate."""
    if "lr" not in group:
        raise NotMeasurable("has no learning rate `lr` in its parameter groups")
    gradient = torch.tensor([[1.0, -2.0, 0.5], [3.0, -0.25, -1.0]], dtype=torch.float64)

    def size(scale: float, rate: float) -> Tensor:
        moved = _limit(kind, attributes, group, scale * gradient, rate)
        decayed = _limit(kind, attributes, group, 0 * gradient, rate)
        return (decayed - moved) / (scale * gradient)

    sizes = size(1.0, _LEARNING_RATE)
    expected = float(sizes.flatten()[0])
    if not expected > 0:
        raise NotMeasurable(f"moves a weight by {-expected:g} times a constant gradient")
    if not _agree(sizes, expected):
        raise NotMeasurable("does not move all weights by the same multiple of their gradients")
    if not _agree(size(10.0, _LEARNING_RATE), expected):
        raise NotMeasurable("does not move a weight ten times as far along ten times the gradient")
    if not _agree(size(1.0, _LEARNING_RATE / 2), expected / 2):
        raise NotMeasurable("does not move a weight in proportion to the learning rate")
    return expected / _LEARNING_RATE


def _limit(
    kind: type[Optimizer], attributes: dict[str, Any], group: ParameterGroup, gradient: Tensor, rate: float
) -> Tensor:
    """D(gradient): the displacement by one step along a constant gradient, in the limit of many steps."""
    start = torch.tensor([[0.5, -1.0, 2.0], [-0.25, 1.5, 0.75]], dtype=torch.float64)
    weight = nn.Parameter(start.clone())
    step = _step_of_a_copy(kind, attributes, {**group, "lr": _like(group["lr"], rate), "params": [weight]})
    moves: list[Tensor] = []
    limit, settled = torch.full_like(start, torch.nan), 0
    for _ in range(_MAX_STEPS):
        weight.grad = gradient.clone()
        try:
            step()
        except Exception as error:  # a foreign `step` may raise anything on a weight that is not its own
            raise NotMeasurable(f"cannot be measured: its step on a small weight raised {error!r}") from error
        with torch.no_grad():
            moves = [*moves[-2:], weight - start]
            weight.copy_(start)
        before, limit = limit, _extrapolated(moves)
        settled = settled + 1 if bool(((limit - before).abs() <= 1e-9 * limit.abs()).all()) else 0
        if settled >= _SETTLED:
            return limit
    raise NotMeasurable("does not converge to one step along a constant gradient")


def _extrapolated(moves: list[Tensor]) -> Tensor:
    """The limit of a geometric sequence (momentum) from its last three members, by Aitken's formula."""
    if len(moves) < 3:
        return torch.full_like(moves[-1], torch.nan)
    first, second, third = moves
    bend = (third - second) - (second - first)
    converged = bend.abs() <= 1e-13 * third.abs()
    return torch.where(converged, third, third - (third - second).square() / torch.where(converged, 1.0, bend))


def _step_of_a_copy(kind: type[Optimizer], attributes: dict[str, Any], group: ParameterGroup) -> Callable[[], Any]:
    """`step` of an optimizer with the same settings, one weight, no state and no hooks."""
    other = object.__new__(kind)
    other.__dict__.update(copy.deepcopy(attributes))
    other.param_groups, other.state = [group], defaultdict(dict)
    step: Callable[..., Any] = kind.step
    while getattr(step, "hooked", False):  # PyTorch's wrapper would run the global hooks
        step = step.__wrapped__  # type: ignore[attr-defined]
    return lambda: step(other)


def _plain_attributes(optimizer: Optimizer) -> dict[str, Any]:
    """The attributes besides parameter groups and state, without hooks."""
    skipped = {"param_groups", "state", "step"}  # schedulers set `step` on an instance
    attributes = {
        name: OrderedDict() if name.endswith("_hooks") else value
        for name, value in vars(optimizer).items()
        if name not in skipped
    }
    for name, value in attributes.items():
        if not _is_plain(value):
            raise NotMeasurable(f"cannot be measured: it holds a {type(value).__name__} in `{name}`")
    return attributes


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_is_plain(key) and _is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple | set):
        return all(map(_is_plain, value))
    if isinstance(value, Tensor):
        return not isinstance(value, nn.Parameter) and value.numel() <= 16
    if isinstance(value, FunctionType):
        return value.__closure__ is None
    return value is None or isinstance(value, bool | int | float | complex | str | torch.dtype | torch.device)


def _like(template: object, rate: float) -> float | Tensor:
    return torch.tensor(rate, dtype=template.dtype) if isinstance(template, Tensor) else rate


def _agree(sizes: Tensor, expected: float) -> bool:
    return bool(((sizes - expected).abs() <= _TOLERANCE * expected).all())
