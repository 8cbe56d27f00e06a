"""How far one optimizer step moves a weight along a constant gradient: the step size that the penalty must use too.

The proximal step has to scale the penalty as the optimizer scales the loss. Then one strength means one objective:

    SGD       heavy-ball momentum m and dampening d sum a constant gradient to (1 - d) / (1 - m) times itself, with
              Nesterov momentum too (there d = 0): lr (1 - d) / (1 - m)
    RMSprop   the same sum of the scaled gradient: lr / (1 - m)
    Adagrad   lr / (1 + (t - 1) lr_decay)
    others    lr: averages such as Adam's first moment leave a constant gradient as it is

An adaptive optimizer divides the gradient of each weight by a scale d_i of its own. In the metric of that diagonal the
step of a weight is the step above divided by d_i:

    Adam, AdamW   sqrt(v_i / (1 - beta2^t)) + eps, with amsgrad the largest v_i so far
    RMSprop       sqrt(v_i) + eps, centered: sqrt(v_i - g_i^2) + eps
    Adagrad       sqrt(sum_i) + eps
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer, RMSprop

from gossamer.errors import GossamerError

__all__ = ["diagonal", "group_of", "has_diagonal", "step_size", "step_sizes"]

_Group = dict[str, Any]
_State = dict[str, Any]


def group_of(optimizer: Optimizer) -> dict[Tensor, _Group]:
    """Parameter -> its parameter group."""
    return {parameter: group for group in optimizer.param_groups for parameter in group["params"]}


def step_sizes(optimizer: Optimizer, parameters: Sequence[Tensor], factor: float) -> list[Tensor]:
    """factor * `step_size` of each parameter; the same tensor for parameters that share it."""
    groups = group_of(optimizer)
    found: dict[tuple[int, float], Tensor] = {}
    sizes = []
    for parameter in parameters:
        group, state = groups[parameter], optimizer.state.get(parameter, {})
        # Of all that is known here only Adagrad's decay looks at the state of a single parameter.
        key = id(group), float(state["step"]) if isinstance(optimizer, Adagrad) else 0.0
        if key not in found:
            found[key] = factor * step_size(optimizer, group, state)
        sizes.append(found[key])
    return sizes


@singledispatch
def step_size(optimizer: Optimizer, group: _Group, state: _State) -> Tensor:
    """The step along a constant gradient, as a float64 tensor without dimensions."""
    del optimizer, state
    return _learning_rate(group)


@step_size.register
def _(optimizer: SGD, group: _Group, state: _State) -> Tensor:
    del optimizer, state
    momentum = _momentum(group)
    dampening: float = group["dampening"] if momentum else 0.0  # without momentum there is nothing to dampen
    return _learning_rate(group) * ((1 - dampening) / (1 - momentum))


@step_size.register
def _(optimizer: RMSprop, group: _Group, state: _State) -> Tensor:
    del optimizer, state
    return _learning_rate(group) / (1 - _momentum(group))


@step_size.register
def _(optimizer: Adagrad, group: _Group, state: _State) -> Tensor:
    del optimizer
    decay: float = group["lr_decay"]
    return _learning_rate(group) / (1 + (float(state["step"]) - 1) * decay)


@singledispatch
def diagonal(optimizer: Optimizer, group: _Group, state: _State) -> Tensor:
    """d_i: what the optimizer divides the gradient of each weight by."""
    raise TypeError(type(optimizer))  # attach has asked `has_diagonal` first


@diagonal.register(Adam)
@diagonal.register(AdamW)
def _(optimizer: Adam | AdamW, group: _Group, state: _State) -> Tensor:
    del optimizer
    second = state["max_exp_avg_sq"] if group["amsgrad"] else state["exp_avg_sq"]
    correction = 1 - group["betas"][1] ** float(state["step"])
    scale: Tensor = second / correction
    return scale.sqrt_().add_(group["eps"])


@diagonal.register
def _(optimizer: RMSprop, group: _Group, state: _State) -> Tensor:
    del optimizer
    second: Tensor = state["square_avg"]
    if group["centered"]:
        second = second - state["grad_avg"].square()
    return second.sqrt().add_(group["eps"])


@diagonal.register
def _(optimizer: Adagrad, group: _Group, state: _State) -> Tensor:
    del optimizer
    total: Tensor = state["sum"]
    return total.sqrt().add_(group["eps"])


def has_diagonal(optimizer: Optimizer) -> bool:
    """Whether the metric of this optimizer is known."""
    return diagonal.dispatch(type(optimizer)) is not diagonal.dispatch(Optimizer)


def _momentum(group: _Group) -> float:
    momentum: float = group["momentum"]
    if not momentum < 1:
        raise GossamerError(
            f"With momentum {momentum!r} gradients add up without end, and no strength goes with that. Use one below 1."
        )
    return momentum


def _learning_rate(group: _Group) -> Tensor:
    return torch.as_tensor(group["lr"], dtype=torch.float64).reshape(())
