"""The step size of an optimizer along a constant gradient: the step size that the penalty has to use as well.

The objective is loss + strength * Omega. One iteration is an optimizer step followed by a proximal step. Along a
constant gradient g the optimizers below move weight i by -(size / d_i) g_i once their averages have settled. A proximal
step of the same size in the metric d has its fixed points where -g is in strength * dOmega: at the stationary points of
the objective. With this choice one strength means one objective under every optimizer:

    SGD           momentum m and dampening d sum a constant gradient to (1 - d) / (1 - m) times itself, also with
                  Nesterov momentum (where d = 0): size = lr (1 - d) / (1 - m), d_i = 1
    ASGD          size = lr / (1 + lambd lr (t - 1))^alpha, d_i = 1
    Adam, AdamW   d_i = sqrt(v_i / (1 - beta2^t)) + eps, v_i the largest so far with amsgrad; size = lr, because the
                  bias-corrected average of a constant gradient is the gradient
    SparseAdam    as Adam with eps / sqrt(1 - beta2^t)
    RAdam         as SparseAdam, size = lr times the rectification; in its first steps, which do not divide by
                  sqrt(v_i), size = lr and d_i = 1
    NAdam         d_i as Adam; size = lr ((1 - mu_t) / (1 - M_t) + mu_{t+1} (1 - beta1^t) / (1 - M_t mu_{t+1})) with
                  M_t = mu_1 ... mu_t
    Adamax        d_i = u_i, the decaying maximum of |g_i| + eps; size = lr
    Adadelta      d_i = sqrt(v_i + eps) / sqrt(delta_i + eps); size = lr
    RMSprop       d_i = sqrt(v_i) + eps, centered: sqrt(v_i - mean_i^2) + eps; size = lr / (1 - m)
    Adagrad       d_i = sqrt(sum_i) + eps; size = lr / (1 + (t - 1) lr_decay)
    Adafactor     see `gossamer.proximal.adafactor`

Optimizers of other packages are in `gossamer.proximal.third_party`. Unknown optimizers are measured
(`gossamer.proximal.measured`); those without a step size are refused (`gossamer.proximal.optimizers`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.optim import (
    ASGD,
    SGD,
    Adadelta,
    Adafactor,
    Adagrad,
    Adam,
    Adamax,
    NAdam,
    Optimizer,
    RAdam,
    RMSprop,
    SparseAdam,
)

from gossamer.errors import GossamerError
from gossamer.proximal.adafactor import torch_adafactor
from gossamer.proximal.metric import Given, ParameterGroup, Root, State, Step, StepRule, learning_rate

__all__ = ["KNOWN", "Known", "adam"]


class Known(NamedTuple):
    """The step rule of an optimizer, and whether the optimizer is adaptive (has a metric)."""

    rule: StepRule
    adaptive: bool


def sgd(parameter: Tensor, group: ParameterGroup, state: State) -> Step:
    """`torch.optim.SGD`."""
    del parameter, state
    momentum = _momentum(group)
    dampening = float(group["dampening"]) if momentum else 0.0  # without momentum there is nothing to dampen
    return Step(learning_rate(group) * ((1 - dampening) / (1 - momentum)))


def asgd(parameter: Tensor, group: ParameterGroup, state: State) -> Step:
    """`torch.optim.ASGD`."""
    del parameter
    rate = learning_rate(group)
    return Step(rate / (1 + group["lambd"] * rate * (float(state["step"]) - 1)) ** group["alpha"])


def adam(parameter: Tensor, group: ParameterGroup, state: State) -> Step:
    """`torch.optim.Adam` and `AdamW`."""
    del parameter
    second = state["max_exp_avg_sq" if group["amsgrad"] else "exp_avg_sq"]
    return Step(learning_rate(group), Root(second, _correction(group, state), float(group["eps"])))


def sparse_adam(parameter: Tensor, group: ParameterGroup, state: State) -> Step:
    """`torch.optim.SparseAdam`.

    The optimizer skips the rows that are not in the batch; the penalty does not, or it would be weaker for rare rows.
    """
    del parameter
    correction = _correction(group, state)
    return Step(learning_rate(group), Root(state["exp_avg_sq"], correction, group["eps"] / math.sqrt(correction)))


def radam(parameter: Tensor, group: ParameterGroup, state: State) -> Step:
    """`torch.optim.RAdam`."""
    adaptive = sparse_adam(parameter, group, state)
    beta2, count = float(group["betas"][1]), float(state["step"])
    longest = 2 / (1 - beta2) - 1
    length = longest - 2 * count * beta2**count / (1 - beta2**count)
    if length <= 5:
        return Step(adaptive.size)
    rectified = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
    return Step(adaptive.size * math.sqrt(rectified), adaptive.metric)


def nadam(parameter: Tensor, group: ParameterGroup, state: State) -> Step:
    """`torch.optim.NAdam`."""
    del parameter
    beta1, count, product = float(group["betas"][0]), float(state["step"]), float(state["mu_product"])
    now, following = (beta1 * (1 - 0.5 * 0.96 ** (t * group["momentum_decay"])) for t in (count, count + 1))
    factor = (1 - now) / (1 - product) + following * (1 - beta1**count) / (1 - product * following)
    return Step(
        learning_rate(group) * factor, Root(state["exp_avg_sq"], _correction(group, state), float(group["eps"]))
    )


def adamax(parameter: Tensor, group: ParameterGroup, state: State) -> Step:
    """`torch.optim.Adamax`. A maximum of eps means that all gradients were zero."""
    del parameter
    largest = state["exp_inf"]
    unseen = float(torch.tensor(group["eps"], dtype=largest.dtype))  # eps as the optimizer rounds it
    return Step(learning_rate(group), Given(torch.where(largest > unseen, largest.reciprocal(), 0.0)))


def adadelta(parameter: Tensor, group: ParameterGroup, state: State) -> Step:
    """`torch.optim.Adadelta`."""
    del parameter
    second, eps = state["square_avg"], group["eps"]
    inverse = (state["acc_delta"] + eps).div_(second + eps).sqrt_()
    return Step(learning_rate(group), Given(torch.where(second > 0, inverse, 0.0)))


def rmsprop(parameter: Tensor, group: ParameterGroup, state: State) -> Step:
    """`torch.optim.RMSprop`."""
    del parameter
    size, second, eps = learning_rate(group) / (1 - _momentum(group)), state["square_avg"], float(group["eps"])
    if not group["centered"]:
        return Step(size, Root(second, 1.0, eps))
    scale = (second - state["grad_avg"].square()).clamp_(min=0).sqrt_().add_(eps)
    return Step(size, Given(torch.where(second > 0, scale.reciprocal_(), 0.0)))


def adagrad(parameter: Tensor, group: ParameterGroup, state: State) -> Step:
    """`torch.optim.Adagrad`."""
    del parameter
    size = learning_rate(group) / (1 + (float(state["step"]) - 1) * group["lr_decay"])
    return Step(size, Root(state["sum"], 1.0, float(group["eps"])))


# By the class that defines `step`: AdamW inherits Adam's, and so does every subclass that does not override it.
KNOWN: dict[type[Optimizer], Known] = {
    SGD: Known(sgd, adaptive=False),
    ASGD: Known(asgd, adaptive=False),
    Adam: Known(adam, adaptive=True),
    SparseAdam: Known(sparse_adam, adaptive=True),
    RAdam: Known(radam, adaptive=True),
    NAdam: Known(nadam, adaptive=True),
    Adamax: Known(adamax, adaptive=True),
    Adadelta: Known(adadelta, adaptive=True),
    RMSprop: Known(rmsprop, adaptive=True),
    Adagrad: Known(adagrad, adaptive=True),
    Adafactor: Known(torch_adafactor, adaptive=True),
}


def _correction(group: ParameterGroup, state: State) -> float:
    beta2, count = float(group["betas"][1]), float(state["step"])
    correction: float = 1 - beta2**count
    return correction


def _momentum(group: ParameterGroup) -> float:
    momentum = float(group["momentum"])
    if not momentum < 1:
        raise GossamerError(
            f"With momentum {group['momentum']!r} a constant gradient adds up without bound, so the optimizer has no "
            "step size for the penalty to use. Use a momentum below 1."
        )
    return momentum
