"""How far one optimizer step moves a weight along a constant gradient: the step size that the penalty must use too.

The objective is loss + strength * Omega. An optimizer step and a proximal step together leave a weight where it is only if
both move it equally far. Along a constant gradient g, the optimizers below move weight i by -(size / d_i) g_i in the long
run. A proximal step with the same size and the same d_i rests where -g is in strength * dOmega, which is a stationary
point of the objective. So one strength means one objective under all of them:

    SGD           heavy-ball momentum m and dampening d sum a constant gradient to (1 - d) / (1 - m) times itself, with
                  Nesterov momentum too (there d = 0): size = lr (1 - d) / (1 - m), d_i = 1
    ASGD          size = lr / (1 + lambd lr (t - 1))^alpha, d_i = 1
    Adam, AdamW   d_i = sqrt(v_i / (1 - beta2^t)) + eps, with amsgrad the largest v_i so far; size = lr, because the
                  corrected average of a constant gradient is the gradient
    SparseAdam    the same with eps / sqrt(1 - beta2^t)
    RAdam         the same again, size = lr times its rectification; in the first steps, where it does not divide by
                  sqrt(v_i), size = lr and d_i = 1
    NAdam         d_i as Adam, size = lr ((1 - mu_t) / (1 - M_t) + mu_{t+1} (1 - beta1^t) / (1 - M_t mu_{t+1})), where
                  M_t is the product of all mu up to t
    Adamax        d_i = u_i, the decaying maximum of |g_i| + eps; size = lr
    Adadelta      d_i = sqrt(v_i + eps) / sqrt(delta_i + eps); size = lr
    RMSprop       d_i = sqrt(v_i) + eps, centered: sqrt(v_i - mean_i^2) + eps; size = lr / (1 - m)
    Adagrad       d_i = sqrt(sum_i) + eps; size = lr / (1 + (t - 1) lr_decay)
    Adafactor     see `gossamer.proximal.adafactor`

Other packages' optimizers are in `gossamer.proximal.third_party`. An unknown optimizer is measured
(`gossamer.proximal.measured`), and one without such a step size is refused (`gossamer.proximal.optimizers`).
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
    """The step rule of an optimizer, and whether it is adaptive: divides each gradient by a scale of its own."""

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
    """`torch.optim.SparseAdam`. Rows outside of a batch are not moved, but penalised: the objective is the same."""
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
    """`torch.optim.Adamax`. It adds eps to |g|: a maximum of eps alone is no gradient at all."""
    del parameter
    largest = state["exp_inf"]
    unseen = torch.zeros((), dtype=largest.dtype).add_(group["eps"])  # rounded as its own
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


# By the class that defines `step`: AdamW takes Adam's, and so does a subclass that leaves it alone.
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
    return 1 - float(group["betas"][1]) ** float(state["step"])


def _momentum(group: ParameterGroup) -> float:
    momentum = float(group["momentum"])
    if not momentum < 1:
        raise GossamerError(
            f"With momentum {group['momentum']!r} gradients add up without end, and no strength goes with that. "
            "Use one below 1."
        )
    return momentum
