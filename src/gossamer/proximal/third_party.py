"""Step rules for optimizers of other packages, found by the qualified name of the class that defines `step`.

None of these packages is imported.

    transformers.Adafactor   see `gossamer.proximal.adafactor`
    prodigyopt.Prodigy       Adam on the gradients times its distance estimate d: d_i = sqrt(v_i) + d eps, where v_i
                             averages (d g_i)^2; size = d^2 lr (1 - beta1^k), times the bias correction if enabled
    torchao.optim            Adam and AdamW with 8-bit, 4-bit or fp8 state: Adam on the dequantized second moments
    bitsandbytes.optim       Adam and AdamW with 8-bit or 32-bit state: the same
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.optim import Optimizer

from gossamer.proximal.adafactor import transformers_adafactor
from gossamer.proximal.metric import ParameterGroup, Root, State, Step, learning_rate
from gossamer.proximal.steps import Known, adam

__all__ = ["third_party"]

_BITSANDBYTES_BLOCK = 256  # weights per scale


def third_party(optimizer: Optimizer, owner: type[Optimizer]) -> Known | None:
    """The step rule of an optimizer whose `step` is defined by the class `owner`; None if it is not listed above."""
    name = f"{owner.__module__}.{owner.__qualname__}"
    if name == "bitsandbytes.optim.optimizer.Optimizer8bit":
        return Known(bitsandbytes_adam, adaptive=True) if _is_bitsandbytes_adam(optimizer) else None
    rule = _RULES.get(name)
    return None if rule is None else Known(rule, adaptive=True)


def prodigy(parameter: Tensor, group: ParameterGroup, state: State) -> Step:
    """`prodigyopt.Prodigy`."""
    del parameter
    distance, count = float(group["d"]), group["k"]
    beta1, beta2 = group["betas"]
    size = distance * distance * learning_rate(group)
    size *= math.sqrt(1 - beta2**count) if group["use_bias_correction"] else 1 - beta1**count
    return Step(size, Root(state["exp_avg_sq"], 1.0, distance * group["eps"]))


def torchao_adam(parameter: Tensor, group: ParameterGroup, state: State) -> Step:
    """Adam and AdamW of `torchao.optim`; the state of small tensors is not quantized."""
    del parameter
    step = adam(torch.empty(0), group, state)
    assert isinstance(step.metric, Root)
    second = step.metric.second
    plain = second if type(second) is Tensor else second.dequantize()
    return Step(step.size, step.metric._replace(second=plain))


def bitsandbytes_adam(parameter: Tensor, group: ParameterGroup, state: State) -> Step:
    """Adam and AdamW of `bitsandbytes.optim`; the state of small tensors is not quantized."""
    second = state["state2"]
    if second.dtype == torch.uint8:
        scales = state["absmax2"].repeat_interleave(_BITSANDBYTES_BLOCK)[: second.numel()]
        second = (state["qmap2"][second.flatten().long()] * scales).view_as(parameter)
    return Step(learning_rate(group), Root(second, 1 - group["betas"][1] ** state["step"], group["eps"]))


def _is_bitsandbytes_adam(optimizer: Optimizer) -> bool:
    limits = [group.get("max_unorm", 0.0) for group in optimizer.param_groups]
    limits.append(getattr(getattr(optimizer, "args", None), "max_unorm", 0.0))
    return getattr(optimizer, "optimizer_name", None) == "adam" and not any(limits)


_RULES: dict[str, Callable[[Tensor, ParameterGroup, State], Step]] = {
    "transformers.optimization.Adafactor": transformers_adafactor,
    "prodigyopt.prodigy.Prodigy": prodigy,
    "torchao.optim.adam._AdamBase": torchao_adam,
}
