"""The step of Adafactor: factored second moments, a step relative to the size of the weight, clipped updates.

    d_ij = sqrt(row_i column_j / mean(row)),   size = alpha / max(1, RMS(g / d) / threshold),
    alpha = max(eps2, RMS(w)) rho_t,   w: the weight before the step.

PyTorch's implementation does not store RMS(w). It is recovered from the weight after the step: that weight is
w - tau g / d with tau = size, which makes the definition of alpha a quadratic equation for tau.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gossamer.proximal.metric import Given, ParameterGroup, State, Step, learning_rate

__all__ = ["torch_adafactor", "transformers_adafactor"]


def torch_adafactor(parameter: Tensor, group: ParameterGroup, state: State) -> Step:
    """`torch.optim.Adafactor`."""
    rate, count = learning_rate(group), float(state["step"])
    eps1 = torch.finfo(parameter.dtype).eps if group["eps"][0] is None else group["eps"][0]
    if parameter.dim() > 1:
        row, column = state["row_var"], state["col_var"]
        second = row @ column / row.mean(dim=-2, keepdim=True).clamp(min=eps1)
    else:
        second = state["variance"]
    inverse = torch.where(second > 0, second.clamp(min=eps1 * eps1).rsqrt(), 0.0)
    relative = min(rate, count**-0.5)
    tau = _step_taken(parameter, inverse * _gradient(parameter), relative, 1 - rate * group["weight_decay"], group)
    return Step(tau, Given(inverse))


def transformers_adafactor(parameter: Tensor, group: ParameterGroup, state: State) -> Step:
    """`transformers.Adafactor`, which stores RMS(w) and can run without a learning rate (`relative_step=True`)."""
    count, eps1 = int(state["step"]), float(group["eps"][0])
    if group["relative_step"]:
        rate = min(1e-6 * count if group["warmup_init"] else 1e-2, 1 / math.sqrt(count))
    else:
        rate = learning_rate(group)
    if group["scale_parameter"]:
        rate *= max(group["eps"][1], float(state["RMS"]))
    unseen = eps1 * (1 + 1e-6)  # eps1 is added to every squared gradient
    if parameter.dim() > 1:
        row, column = state["exp_avg_sq_row"].unsqueeze(-1), state["exp_avg_sq_col"].unsqueeze(-2)
        second = row / row.mean(dim=-2, keepdim=True) * column
        seen = (row > unseen) & (column > unseen)
    else:
        second = state["exp_avg_sq"]
        seen = second > unseen
    inverse = torch.where(seen, second.rsqrt(), 0.0)
    clip = max(1.0, _rms(inverse * _gradient(parameter)) / float(group["clip_threshold"]))
    return Step(rate / clip, Given(inverse))


def _step_taken(parameter: Tensor, update: Tensor, relative: float, decay: float, group: ParameterGroup) -> float:
    """tau, where parameter = decay w - tau update and tau = max(eps2, RMS(w)) relative / clip."""
    clip = max(1.0, _rms(update) / float(group["d"]))
    if relative == 0:
        return 0.0
    after = parameter.detach().to(update.dtype)
    # a tau^2 - 2 b tau - c = 0 says that tau clip / relative is RMS(w) = RMS(after + tau update) / decay
    a = (clip * decay / relative) ** 2 - _mean(update, update)
    b, c = _mean(after, update), _mean(after, after)
    tau = (b + math.sqrt(b * b + a * c)) / a if a > 0 else 0.0
    return max(tau, float(group["eps"][1]) * relative / clip)


def _gradient(parameter: Tensor) -> Tensor:
    gradient = parameter.grad
    assert gradient is not None  # parameters without a gradient take no step
    return gradient.float() if gradient.dtype in (torch.float16, torch.bfloat16) else gradient


def _rms(tensor: Tensor) -> float:
    return math.sqrt(_mean(tensor, tensor))


def _mean(first: Tensor, second: Tensor) -> float:
    return float((first * second).mean(dtype=torch.float64))
