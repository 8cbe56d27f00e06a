"""The step rules of optimizers from other packages, found by the full name of the class that defines `step`.

Nothing is imported from these packages. The docstrings say which state the rules read:

    transformers.Adafactor     see `gossamer.proximal.adafactor`
    prodigyopt.Prodigy         Adam on gradients times its estimate d of the distance: d_i = sqrt(v_i) + d eps with v_i
                               of d g_i; size = d^2 lr (1 - beta1^k), times its bias correction where that is asked for
    torchao.optim (8-bit, 4-bit and fp8 Adam and AdamW), bitsandbytes.optim (Adam and AdamW)
                               Adam, on second moments that are stored in blocks of few bits
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

_BITSANDBYTES_BLOCK = 256  # weights that share a scale


def third_party(optimizer: Optimizer, owner: type[Optimizer]) -> Known | None:
    """The step rule of this optimizer, whose `step` the class `owner` defines, if it is one of those above."""
    name = f"{owner.__module__}.{owner.__qualname__}"
    if name == "bitsandbytes.optim.optimizer.Optimizer8bit":
        return Known(bitsandbytes_adam, adaptive=True) if _is_bitsandbytes_adam(optimizer) else None
    rule = _RULES.get(name)
    return None if rule is None else Known(rule, adaptive=True)


def prodigy(parameter: Tensor, group: ParameterGroup, state: State) -> Step:
    """`prodigyopt.Prodigy`: `d` and `k` of the group, `exp_avg_sq` of the state."""
    del parameter
    distance, count = float(group["d"]), group["k"]
    beta1, beta2 = group["betas"]
    size = distance * distance * learning_rate(group)
    size *= math.sqrt(1 - beta2**count) if group["use_bias_correction"] else 1 - beta1**count
    return Step(size, Root(state["exp_avg_sq"], 1.0, distance * group["eps"]))


def torchao_adam(parameter: Tensor, group: ParameterGroup, state: State) -> Step:
    """`torchao.optim`'s Adam and AdamW of 8 or 4 bits or fp8: `exp_avg_sq`, small tensors in float32."""
    del parameter
    step = adam(torch.empty(0), group, state)
    assert isinstance(step.metric, Root)
    second = step.metric.second
    plain = second if type(second) is Tensor else second.dequantize()
    return Step(step.size, step.metric._replace(second=plain))


def bitsandbytes_adam(parameter: Tensor, group: ParameterGroup, state: State) -> Step:
    """`bitsandbytes.optim`'s Adam and AdamW of 8 or 32 bits: `state2`, `qmap2`, `absmax2`."""
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
