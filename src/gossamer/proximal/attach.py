"""`attach`: from now on every `optimizer.step()` ends in the proximal step."""

from __future__ import annotations

import gc
from typing import Literal, get_args
from weakref import WeakKeyDictionary

from torch.optim import Optimizer

from gossamer.errors import GossamerError
from gossamer.proximal.fused import FUSED_FROM, FusedStep, supports
from gossamer.proximal.handle import ProximalStep
from gossamer.proximal.native import load_kernel
from gossamer.proximal.schedules import Schedule, constant
from gossamer.proximal.steps import has_diagonal
from gossamer.regularizers import Regularizer

__all__ = ["Compile", "Metric", "attach", "attached"]

Metric = Literal["euclidean", "adaptive"]
Compile = bool | Literal["auto"]

# Weak keys: a handle has no reference to its optimizer, so both are freed together.
_handles: WeakKeyDictionary[Optimizer, list[ProximalStep]] = WeakKeyDictionary()


def attach(
    optimizer: Optimizer,
    regularizer: Regularizer,
    *,
    metric: Metric = "euclidean",
    schedule: Schedule = constant,
    compile: Compile = "auto",  # noqa: A002  # what PyTorch's users look for
) -> ProximalStep:
    """Minimise loss + strength * Omega: each `optimizer.step()` is followed by the regularizer's proximal step.

    The optimizer, its schedulers, GradScaler, checkpoints and the training loop stay as they are. The size of the
    proximal step follows the current learning rate, momentum and dampening of each parameter group, so one strength
    means one objective under every optimizer. Parameters without a gradient are not stepped by the optimizer, nor here.

    Args:
        optimizer: any `torch.optim.Optimizer` that trains the regularizer's weights.
        regularizer: the result of `gossamer.integrated_tl1` or another recipe.
        metric: "euclidean", as in the paper, has one step size for all weights of a parameter group. "adaptive" takes
            the proximal step in the diagonal metric of Adam, AdamW, RMSprop or Adagrad, so that the penalty is scaled
            like the gradient.
        schedule: the strength is multiplied by `schedule(step)`, step = 0, 1, ...; for example `gossamer.warm_up(500)`.
        compile: take the proximal step of weights on the CPU by a compiled kernel, in one pass and in place. The result
            is the same up to rounding, at little more than the cost of copying the weights. "auto" uses the kernel
            for models of 5,000 weights or more; compiling takes some seconds, once on each machine. Without a C++
            compiler, with the adaptive metric, and for penalties that the kernel does not know, PyTorch operations
            are used.

    Returns:
        A handle: `hold()` ends the penalty and keeps the zeros, `remove()` detaches.
    """
    if metric not in get_args(Metric):
        raise GossamerError(f"`metric` must be one of {', '.join(get_args(Metric))}; received {metric!r}.")
    if metric == "adaptive" and not has_diagonal(optimizer):
        raise GossamerError(
            "`metric='adaptive'` knows the metrics of Adam, AdamW, RMSprop and Adagrad; "
            f"received {type(optimizer).__name__}. Use metric='euclidean'."
        )
    if compile not in (True, False, "auto"):
        raise GossamerError(f"`compile` must be True, False or 'auto'; received {compile!r}.")
    _require_owned(optimizer, regularizer)
    _require_new(regularizer)
    adaptive = metric == "adaptive"
    fused = None if adaptive else _fused_step(regularizer, compile)
    handle = ProximalStep(regularizer, adaptive=adaptive, schedule=schedule, fused=fused)
    handle.connect(optimizer, _handles.setdefault(optimizer, []))
    return handle


def attached(optimizer: Optimizer) -> tuple[ProximalStep, ...]:
    """The proximal steps that are attached to an optimizer."""
    return tuple(_handles.get(optimizer, ()))


def _fused_step(regularizer: Regularizer, compile: Compile) -> FusedStep | None:  # noqa: A002
    weights = [(rule, rule.weight.parameter) for rule in regularizer.rules]
    large = sum(weight.numel() for _, weight in weights) >= FUSED_FROM
    if not (compile is True or (compile == "auto" and large)):
        return None
    # Do not compile for models on a GPU, which do not use the kernel.
    kernel = load_kernel() if any(supports(rule, weight) for rule, weight in weights) else None
    return None if kernel is None else FusedStep(kernel)


def _require_owned(optimizer: Optimizer, regularizer: Regularizer) -> None:
    owned = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    missing = [
        rule.name
        for rule in regularizer.rules
        if rule.weight.parameter.requires_grad and id(rule.weight.parameter) not in owned
    ]
    if missing:
        raise GossamerError(
            f"The optimizer does not train {', '.join(missing)}. Give it these parameters, or attach "
            "`regularizer.owned_by(optimizer)`, the part of the regularizer that this optimizer trains."
        )


def _require_new(regularizer: Regularizer) -> None:
    if _attached_already(regularizer):
        gc.collect()  # an optimizer that was replaced may not have been collected yet
    if twice := _attached_already(regularizer):
        raise GossamerError(
            f"{', '.join(twice)} already has a regularizer attached. Call `remove()` on that handle first, or choose "
            "other layers by `only` and `skip`."
        )


def _attached_already(regularizer: Regularizer) -> list[str]:
    handles = [handle for attached_to in list(_handles.values()) for handle in attached_to]
    taken = {id(rule.weight.parameter) for handle in handles for rule in handle.regularizer.rules}
    return [rule.name for rule in regularizer.rules if id(rule.weight.parameter) in taken]
