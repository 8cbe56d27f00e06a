"""`attach`: from now on every `optimizer.step()` ends in the proximal step."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args
from weakref import WeakKeyDictionary

from torch import Tensor
from torch.optim import Optimizer

from gossamer.errors import GossamerError
from gossamer.penalties import L1MinusL2
from gossamer.proximal.fused import FUSED_FROM, FusedStep, supports
from gossamer.proximal.handle import ProximalStep
from gossamer.proximal.metric import Given, ParameterGroup, State, Step, StepRule
from gossamer.proximal.native import load_kernel
from gossamer.proximal.optimizers import is_partition, known_step, unwrapped
from gossamer.proximal.schedules import Schedule, constant
from gossamer.proximal.state import states_in
from gossamer.regularizers import Regularizer

__all__ = ["Compile", "Metric", "StepSize", "attach", "attached"]

Metric = Literal["auto", "euclidean", "adaptive"]
Compile = bool | Literal["auto"]
StepSize = Callable[[Tensor, ParameterGroup, State], float | Tensor]

# By optimizer, weakly: the handles hold no optimizer, so they go when it goes.
_handles: WeakKeyDictionary[Optimizer, list[ProximalStep]] = WeakKeyDictionary()


def attach(
    optimizer: Optimizer,
    regularizer: Regularizer,
    *,
    metric: Metric = "auto",
    schedule: Schedule = constant,
    step_size: StepSize | None = None,
    compile: Compile = "auto",  # noqa: A002  # what PyTorch's users look for
) -> ProximalStep:
    """Minimise loss + strength * Omega: each `optimizer.step()` is followed by the regularizer's proximal step.

    The optimizer, its schedulers, GradScaler, checkpoints and the training loop stay as they are. The proximal step has
    the size of the optimizer's step along a constant gradient, so one strength means one objective under every optimizer.
    Optimizers inside of wrappers are found; unknown ones are measured, or refused (docs/optimizers.md). Parameters without a
    gradient are not stepped by the optimizer, nor here.

    Args:
        optimizer: the optimizer that trains the regularizer's weights, or a wrapper of it (accelerate's,
            ZeroRedundancyOptimizer, Lookahead, SAM).
        regularizer: from `gossamer.integrated_tl1` and its siblings.
        metric: "euclidean" takes one step size for all weights of a parameter group, "adaptive" that of Adam and
            its kind for each weight. "auto" is adaptive for adaptive optimizers and euclidean for the others; anything else
            means another objective. In the adaptive metric a weight waits for its first gradient.
        schedule: the strength is multiplied by `schedule(step)`, step = 0, 1, ...; for example `gossamer.warm_up(500)`.
        step_size: for an optimizer that is not known: a function of (parameter, its parameter group, the optimizer's state
            of it), called after each step. It returns how far the optimizer moves a weight along a constant gradient,
            divided by that gradient: a number for the whole parameter, or a tensor of its shape, where 0 leaves a weight
            alone.
        compile: take the proximal step of weights on the CPU by a compiled kernel, in one pass and in place. It gives
            the same to rounding, for little more than a copy of the weights. "auto" does so for models of 5,000
            weights or more; compiling takes some seconds, once on each machine. Without a C++ compiler, and for
            penalties that the kernel does not know, PyTorch's operations take the step.

    Returns:
        A handle: `hold()` ends the penalty and keeps the zeros, `remove()` detaches.

    Raises:
        GossamerError: If no step size of the optimizer goes with the penalty, or the optimizer does not train the
            regularizer's weights, or they are regularized already.
    """
    if metric not in get_args(Metric):
        raise GossamerError(f"`metric` must be one of {', '.join(get_args(Metric))}; received {metric!r}.")
    if compile not in (True, False, "auto"):
        raise GossamerError(f"`compile` must be True, False or 'auto'; received {compile!r}.")
    if not isinstance(regularizer, Regularizer):
        raise GossamerError(
            f"`regularizer` must be a gossamer Regularizer, such as gossamer.integrated_tl1(model, 1e-4); received "
            f"{type(regularizer).__name__}."
        )
    levels = unwrapped(optimizer)
    rule, adaptive = _step_rule(levels[-1], metric, step_size)
    _require_owned(levels, regularizer)
    _require_values(regularizer)
    _require_new(regularizer)
    if adaptive:
        _require_metric(regularizer)
    handle = ProximalStep(regularizer, step_rule=rule, schedule=schedule, fused=_fused_step(regularizer, compile))
    number = _take_up(handle, levels[0].param_groups)
    handle.connect(levels, _handles.setdefault(levels[-1], []), number)
    return handle


def attached(optimizer: Optimizer) -> tuple[ProximalStep, ...]:
    """The proximal steps that are attached to an optimizer now."""
    return tuple(_handles.get(unwrapped(optimizer)[-1], ()))


def _step_rule(optimizer: Optimizer, metric: Metric, step_size: StepSize | None) -> tuple[StepRule, bool]:
    """The step rule in the metric asked for, and whether that is adaptive."""
    if step_size is not None:
        if not callable(step_size):
            raise GossamerError(
                "`step_size` must be a function (parameter, group, state) -> a number, or a tensor of the parameter's "
                f"shape; received {step_size!r}."
            )
        if metric != "auto":
            raise GossamerError(
                f"`step_size` says by what it returns whether the metric is euclidean or adaptive; received "
                f"metric={metric!r} as well. Leave `metric` out."
            )
        return _given(step_size), False
    known = known_step(optimizer)
    if metric == "adaptive" and not known.adaptive:
        raise GossamerError(
            f"`metric='adaptive'` needs an optimizer that divides the gradient of each weight by a scale of its own, as "
            f"Adam does; received {type(optimizer).__name__}. Leave `metric` out."
        )
    if known.adaptive and metric == "euclidean":
        return lambda parameter, group, state: known.rule(parameter, group, state)._replace(metric=None), False
    return known.rule, known.adaptive


def _given(step_size: StepSize) -> StepRule:
    def rule(parameter: Tensor, group: ParameterGroup, state: State) -> Step:
        size = step_size(parameter, group, state)
        if isinstance(size, Tensor) and size.dim() > 0:
            fits = size.shape == parameter.shape and size.is_floating_point() and size.device == parameter.device
            if fits and bool(((size >= 0) & (size < math.inf)).all()):
                return Step(1.0, Given(size.detach().to(parameter.dtype)))
            received = f"a tensor of shape {tuple(size.shape)} and dtype {size.dtype} on {size.device}"
        else:
            try:
                if 0 <= float(size) < math.inf:
                    return Step(float(size))
            except (TypeError, ValueError):
                pass
            received = repr(size)
        raise GossamerError(
            "`step_size` must return a finite number, not negative, or a tensor of such numbers with the shape of the "
            f"parameter, {tuple(parameter.shape)}, on its device; it returned {received}."
        )

    return rule


def _fused_step(regularizer: Regularizer, compile: Compile) -> FusedStep | None:  # noqa: A002
    weights = [(rule, rule.weight.parameter) for rule in regularizer.rules]
    large = sum(weight.numel() for _, weight in weights) >= FUSED_FROM
    if not (compile is True or (compile == "auto" and large)):
        return None
    # Ask before compiling: a model on a GPU has no use for the kernel.
    kernel = load_kernel() if any(supports(rule, weight) for rule, weight in weights) else None
    return None if kernel is None else FusedStep(kernel)


def _take_up(handle: ProximalStep, groups: list[ParameterGroup]) -> int | None:
    """Load the state of a checkpoint that was loaded before this regularizer was attached; return its number."""
    names = [rule.name for rule in handle.regularizer.rules]
    for number, state in states_in(groups).items():
        if not set(state["weights"]).isdisjoint(names):
            handle.check_state(state)
            handle.load_state(state)
            return number
    return None


def _require_owned(levels: Sequence[Any], regularizer: Regularizer) -> None:
    """The optimizer that steps must have the weights; under ZeRO each process has its part of them."""
    stepping = levels[-2] if len(levels) > 1 and is_partition(levels[-2]) else levels[-1]
    owned = {id(parameter) for group in stepping.param_groups for parameter in group["params"]}
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


def _require_values(regularizer: Regularizer) -> None:
    meta = [rule.name for rule in regularizer.rules if rule.weight.parameter.is_meta]
    if meta:
        raise GossamerError(
            f"{', '.join(meta)} is on the meta device and has no values yet. Materialise the model first, for example with "
            "`model.to_empty(device=...)` and its initialisation, build the optimizer, then attach."
        )


def _require_metric(regularizer: Regularizer) -> None:
    names = [rule.name for rule in regularizer.rules if any(isinstance(t.penalty, L1MinusL2) for t in rule.terms)]
    if names:
        raise GossamerError(
            f"`L1MinusL2` (on {', '.join(names)}) has no proximal step in the metric of an adaptive optimizer. Use another "
            "penalty, or an optimizer such as SGD."
        )


def _require_new(regularizer: Regularizer) -> None:
    if _attached_already(regularizer):
        gc.collect()  # an optimizer that was replaced may still be waiting for the collector
    if twice := _attached_already(regularizer):
        raise GossamerError(
            f"{', '.join(twice)} already has a regularizer attached. Call `remove()` on that handle first, or choose "
            "other layers by `only` and `skip`."
        )


def _attached_already(regularizer: Regularizer) -> list[str]:
    handles = [handle for attached_to in list(_handles.values()) for handle in attached_to]
    taken = {id(rule.weight.parameter) for handle in handles for rule in handle.regularizer.rules}
    return [rule.name for rule in regularizer.rules if id(rule.weight.parameter) in taken]
