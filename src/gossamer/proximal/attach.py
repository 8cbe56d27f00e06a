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
from gossamer.layers import is_sharded
from gossamer.proximal.agreement import say_missing
from gossamer.proximal.approach import Approach, makes_zeros
from gossamer.proximal.fused import FUSED_FROM, FusedStep, supports
from gossamer.proximal.fused_units import FusedUnits
from gossamer.proximal.handle import ProximalStep
from gossamer.proximal.metric import Given, ParameterGroup, State, Step, StepRule
from gossamer.proximal.native import load_kernel, load_unit_kernel
from gossamer.proximal.optimizers import is_partition, known_step, unwrapped
from gossamer.proximal.partition import Partition
from gossamer.proximal.requirements import (
    require_metric,
    require_owned,
    require_shards,
    require_values,
)
from gossamer.proximal.schedules import Schedule, constant
from gossamer.proximal.state import pending_states
from gossamer.proximal.watch import Watch
from gossamer.regularizers import Regularizer
from gossamer.targets import Target

__all__ = ["Compile", "Metric", "StepSize", "attach", "attached"]

Metric = Literal["auto", "euclidean", "adaptive"]
Compile = bool | Literal["auto"]
StepSize = Callable[[Tensor, ParameterGroup, State], float | Tensor]

# Weak keys: a handle has no strong reference to its optimizer, so both are freed together.
_handles: WeakKeyDictionary[Optimizer, list[ProximalStep]] = WeakKeyDictionary()


def attach(
    optimizer: Optimizer,
    regularizer: Regularizer,
    *,
    metric: Metric = "auto",
    schedule: Schedule = constant,
    target: Target | None = None,
    steps: int | None = None,
    step_size: StepSize | None = None,
    compile: Compile = "auto",  # noqa: A002  # what PyTorch's users look for
) -> ProximalStep:
    """Minimise loss + strength * Omega: each `optimizer.step()` is followed by the regularizer's proximal step.

    The optimizer, its schedulers, GradScaler, checkpoints and the training loop stay as they are. The proximal step
    uses the step size of the optimizer along a constant gradient, so one strength means one objective under every
    optimizer. Wrapped optimizers are found; unknown ones are measured or refused (docs/optimizers.md). Parameters
    without a gradient are skipped, as the optimizer skips them.

    Args:
        optimizer: the optimizer that trains the weights of the regularizer, or a wrapper of it: accelerate's,
            ZeroRedundancyOptimizer, Lookahead, SAM.
        regularizer: the result of `gossamer.integrated_tl1` or another recipe.
        metric: "auto" is "adaptive" for Adam and other optimizers that scale the gradient of each weight, "euclidean"
            for the rest. "adaptive" gives each weight its own step size; weights without a gradient so far wait
            for their first one. "euclidean" behind an adaptive optimizer minimises another objective.
        schedule: the strength is multiplied by `schedule(step)`, step = 0, 1, ...; for example `gossamer.warm_up(500)`.
        target: the size that the network has to reach, for example `gossamer.Target(params=0.05)`. It drives the
            strength. The regularizer's own, if it has one, is the first strength. See docs/targets.md.
        steps: the number of optimizer steps until the target must be reached. After that the zeros are held and the
            other weights recover, so train on. Without a target, the length of the training, for its warnings.
        step_size: the step size of an optimizer that is not known, as a function of the parameter, its parameter group
            and its optimizer state. It is called after every step for every weight and returns how far the optimizer
            moves a weight along a constant gradient, divided by the gradient: a number, or a tensor of the shape of
            the parameter. Weights with step size 0 do not move.
        compile: take the proximal step of weights on the CPU by a compiled kernel, in one pass and in place. The result
            is the same up to rounding, at little more than the cost of copying the weights. "auto" uses the kernel
            for models of 5,000 weights or more; compiling it takes some seconds, once per machine. Without a C++
            compiler, and for penalties that the kernel does not know, PyTorch operations are used.

    Returns:
        A handle: `hold()` ends the penalty and keeps the zeros, `remove()` detaches.

    Raises:
        GossamerError: If the optimizer has no step size for the penalty to use, does not train the weights of the
            regularizer, or the weights already have a regularizer; if the target cannot be reached.
    """
    _require_arguments(regularizer, metric, compile)
    regularizer.require_not_flat()
    levels = unwrapped(optimizer)
    rule, adaptive = _step_rule(levels[-1], metric, step_size)
    require_owned(levels, regularizer)
    require_values(regularizer)
    _require_new(regularizer)
    sharded = any(is_sharded(rule.weight.parameter) for rule in regularizer.rules)
    if sharded or regularizer.stage is not None:
        require_shards(regularizer)
    if regularizer.units is not None:
        regularizer.units.place()
    if adaptive:
        require_metric(regularizer)
    handle = ProximalStep(
        regularizer,
        step_rule=rule,
        schedule=schedule,
        fused=_fused_step(regularizer, compile),
        fused_units=_fused_units(regularizer, compile),
        approach=_approach(regularizer, schedule, target, steps),
        watch=Watch(regularizer, steps, zeros=makes_zeros(regularizer)),
        partition=_partition(levels, regularizer, target),
    )
    number = _pick_up(handle, levels[0].param_groups)
    handle.connect(levels, _handles.setdefault(levels[-1], []), number)
    return handle


def _require_arguments(regularizer: Regularizer, metric: Metric, compile: Compile) -> None:  # noqa: A002
    if metric not in get_args(Metric):
        raise GossamerError(f"`metric` must be one of {', '.join(get_args(Metric))}; received {metric!r}.")
    if compile not in (True, False, "auto"):
        raise GossamerError(f"`compile` must be True, False or 'auto'; received {compile!r}.")
    if not isinstance(regularizer, Regularizer):
        raise GossamerError(
            "`regularizer` must be a Regularizer, for example gossamer.integrated_tl1(model, 1e-4); received "
            f"{type(regularizer).__name__}."
        )


def _approach(
    regularizer: Regularizer, schedule: Schedule, target: Target | None, steps: int | None
) -> Approach | None:
    if target is None:
        if regularizer.strength is None:
            raise GossamerError(
                "The regularizer has no strength. Give it one, gossamer.integrated_tl1(model, 1e-4), or ask for a "
                "size: gossamer.attach(optimizer, regularizer, target=gossamer.Target(params=0.05), steps=10_000)."
            )
        return None
    if schedule is not constant:
        raise GossamerError("A target drives the strength during training, so `schedule` has no place. Leave it out.")
    return Approach(target, regularizer, steps)


def attached(optimizer: Optimizer) -> tuple[ProximalStep, ...]:
    """The proximal steps that are attached to an optimizer."""
    return tuple(_handles.get(unwrapped(optimizer)[-1], ()))


def _step_rule(optimizer: Optimizer, metric: Metric, step_size: StepSize | None) -> tuple[StepRule, bool]:
    """The step rule in the requested metric, and whether that metric is adaptive."""
    if step_size is not None:
        if not callable(step_size):
            raise GossamerError(
                "`step_size` must be a function (parameter, group, state) that returns a number or a tensor of the "
                f"shape of the parameter; received {step_size!r}."
            )
        if metric != "auto":
            raise GossamerError(
                "The values of `step_size` determine the metric: a number is euclidean, a tensor adaptive. Received "
                f"metric={metric!r} as well; omit it."
            )
        return _given(step_size), False
    known = known_step(optimizer)
    if metric == "adaptive" and not known.adaptive:
        raise GossamerError(
            "`metric='adaptive'` needs an optimizer that scales the gradient of each weight, such as Adam; received "
            f"{type(optimizer).__name__}. Omit `metric`."
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
            "`step_size` must return a finite non-negative number, or a tensor of such numbers with the shape "
            f"{tuple(parameter.shape)} and the device of the parameter; it returned {received}."
        )

    return rule


def _fused_step(regularizer: Regularizer, compile: Compile) -> FusedStep | None:  # noqa: A002
    if not _wants_kernel(regularizer, compile):
        return None
    weights = [(rule, rule.weight.parameter) for rule in regularizer.rules if rule.terms]
    # Do not compile for models on a GPU, which do not use the kernel.
    if not any(supports(rule, weight) for rule, weight in weights):
        return None
    kernel = load_kernel()
    if kernel is None:
        say_missing()
    return None if kernel is None else FusedStep(kernel)


def _fused_units(regularizer: Regularizer, compile: Compile) -> FusedUnits | None:  # noqa: A002
    parameters = [rule.weight.parameter for rule in regularizer.rules]
    here = all(weight.device.type == "cpu" and not is_sharded(weight) for weight in parameters)
    if (
        regularizer.units is None
        or regularizer.stage is not None
        or not here
        or not _wants_kernel(regularizer, compile)
    ):
        return None
    kernel = load_unit_kernel()
    if kernel is None:
        say_missing()
    return None if kernel is None else FusedUnits(kernel)


def _wants_kernel(regularizer: Regularizer, compile: Compile) -> bool:  # noqa: A002
    large = sum(rule.weight.parameter.numel() for rule in regularizer.rules) >= FUSED_FROM
    return compile is True or (compile == "auto" and large)


def _pick_up(handle: ProximalStep, groups: list[ParameterGroup]) -> int | None:
    """Load the state of this regularizer from a checkpoint that the optimizer has loaded before; return its number."""
    names = [rule.name for rule in handle.regularizer.rules]
    for number, state in pending_states(groups).items():
        if not set(state["weights"]).isdisjoint(names):
            handle.check_state(state)
            handle.load_state(state)
            return number
    return None


def _partition(levels: Sequence[Any], regularizer: Regularizer, target: Target | None) -> Partition | None:
    """With ZeRO, where the proximal step of a weight needs others: how they get together."""
    if len(levels) < 2 or not is_partition(levels[-2]):
        return None
    on_units = regularizer.units is not None and bool(regularizer.units.terms)
    return Partition(levels[-2]) if on_units or target is not None else None


def _require_new(regularizer: Regularizer) -> None:
    if _attached_already(regularizer):
        gc.collect()  # a replaced optimizer may not have been collected yet
    if twice := _attached_already(regularizer):
        raise GossamerError(
            f"{', '.join(twice)} already has a regularizer attached. Call `remove()` on that handle first, or choose "
            "other layers by `only` and `skip`."
        )


def _attached_already(regularizer: Regularizer) -> list[str]:
    handles = [handle for attached_to in list(_handles.values()) for handle in attached_to]
    taken = {id(rule.weight.parameter) for handle in handles for rule in handle.regularizer.rules}
    return [rule.name for rule in regularizer.rules if id(rule.weight.parameter) in taken]
