"""Find the optimizer that steps the weights, and its step rule, or explain why there is none.

Wrappers keep the optimizer they call in an attribute. The proximal step has to follow the innermost optimizer, which
has the state and moves the weights. Behind ZeroRedundancyOptimizer's own step a process has weights whose state is in
another one (see `partition`), and SAM's `second_step` calls the `step` of the optimizer inside, never its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from torch.optim import LBFGS, Muon, Optimizer, Rprop

from gossamer.errors import GossamerError
from gossamer.proximal.measured import NotMeasurable, measured_rule
from gossamer.proximal.steps import KNOWN, Known
from gossamer.proximal.third_party import third_party

__all__ = ["is_nested_step", "is_partition", "known_step", "may_nest", "moves_weights_later", "unwrapped"]

# Attributes of accelerate's and most Lookahead wrappers; of SAM; of timm; of ZeRO; of Lightning; of schedule-free.
_INNER = ("optimizer", "base_optimizer", "_base_optimizer", "optim", "_optimizer", "base")
_ZERO = "torch.distributed.optim.zero_redundancy_optimizer.ZeroRedundancyOptimizer"
_ACCELERATE = "accelerate.optimizer.AcceleratedOptimizer"

_WITHOUT_STEP_SIZE: dict[type[Optimizer], str] = {
    Rprop: "moves each weight by the sign of its gradient, regardless of its size",
    Muon: "orthogonalizes the gradient of a whole matrix, regardless of its size",
    LBFGS: "moves along quasi-Newton directions, which mix all weights and assume that nothing else moves them",
}


def unwrapped(optimizer: Any) -> tuple[Any, ...]:
    """The optimizer and those inside of it, from the outermost wrapper to the optimizer that steps the weights.

    Raises:
        GossamerError: If there is no optimizer, or a wrapper that is incompatible with proximal steps.
    """
    levels = [optimizer]
    while (inner := _inner(levels[-1])) is not None:
        levels.append(inner)
    if not isinstance(levels[-1], Optimizer):
        raise GossamerError(
            f"`attach` needs a torch.optim.Optimizer or a wrapper of one; received {type(optimizer).__name__}. Pass "
            "the optimizer that steps the weights."
        )
    for level in levels:
        _refuse_averages(level)
    return tuple(levels)


def known_step(optimizer: Optimizer) -> Known:
    """The step rule of an optimizer without wrappers: known by its class, or measured.

    Raises:
        GossamerError: If the optimizer has no step size for the penalty to use.
    """
    owner = _defines_step(type(optimizer))
    known = KNOWN.get(owner) or third_party(optimizer, owner)
    if known is not None:
        return known
    if owner in _WITHOUT_STEP_SIZE:
        raise _refusal(optimizer, _WITHOUT_STEP_SIZE[owner])
    try:
        return Known(measured_rule(optimizer), adaptive=False)
    except NotMeasurable as reason:
        raise _refusal(optimizer, str(reason)) from reason


def moves_weights_later(wrapper: Any) -> bool:
    """Whether a wrapper may move weights after the step of the optimizer inside, as Lookahead does."""
    return not (_is(wrapper, _ZERO) or _is(wrapper, _ACCELERATE))


def is_partition(wrapper: Any) -> bool:
    """Whether the optimizer inside of a wrapper steps only this process's part of the weights, as with ZeRO."""
    return _is(wrapper, _ZERO)


def may_nest(kind: type[Optimizer]) -> bool:
    """Whether a class overrides the `step` of a base class, and so may call it."""
    bases = [base for base in kind.__mro__ if issubclass(base, Optimizer) and base is not Optimizer]
    return len({_without_hooks(base.step) for base in bases}) > 1


def is_nested_step(optimizer: Optimizer) -> bool:
    """Whether the `step` that has just ended was called by another `step` of the same optimizer.

    PyTorch runs the hooks after `super().step()`, and again after the overriding `step` that called it.
    """
    wrapper = getattr(type(optimizer).step, "__code__", None)  # PyTorch's wrappers share one code object
    frame: FrameType | None = sys._getframe(1)
    running = 0
    while frame is not None and running < 2:
        running += frame.f_code is wrapper and frame.f_locals.get("self") is optimizer
        frame = frame.f_back
    return running > 1


def _inner(optimizer: Any) -> Optimizer | None:
    if _is(optimizer, _ZERO) and optimizer._overlap_with_ddp:
        raise GossamerError(
            "ZeroRedundancyOptimizer(overlap_with_ddp=True) steps the weights during the backward pass, where no "
            "proximal step can follow. Use overlap_with_ddp=False."
        )
    attributes = getattr(optimizer, "__dict__", {})
    inner = [attributes[name] for name in _INNER if isinstance(attributes.get(name), Optimizer)]
    return inner[0] if inner and inner[0] is not optimizer else None


def _refuse_averages(level: Any) -> None:
    swaps = all(callable(getattr(type(level), name, None)) for name in ("train", "eval"))
    if swaps and not _is(level, _ACCELERATE):
        raise GossamerError(
            f"{type(level).__name__} has `train()` and `eval()`: like all schedule-free optimizers it evaluates an "
            "average of the weights that it trains, and averages are not exactly zero. Use an optimizer that evaluates "
            "the weights themselves, for example torch.optim.AdamW with a learning-rate schedule."
        )


def _is(level: Any, name: str) -> bool:
    """Whether a level is an instance of the class with this qualified name, without importing it."""
    return any(f"{kind.__module__}.{kind.__qualname__}" == name for kind in type(level).__mro__)


def _defines_step(kind: type[Optimizer]) -> type[Optimizer]:
    """The class that defines the `step` of a class; PyTorch wraps `step` for its hooks, in a subclass or in a base."""
    own = _without_hooks(kind.step)
    return [base for base in kind.__mro__ if issubclass(base, Optimizer) and _without_hooks(base.step) is own][-1]


def _without_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    while getattr(step, "hooked", False):
        step = step.__wrapped__  # type: ignore[attr-defined]
    return step


def _refusal(optimizer: Optimizer, reason: str) -> GossamerError:
    known = ", ".join(sorted({kind.__name__ for kind in KNOWN} | {"AdamW"}))
    return GossamerError(
        f"{type(optimizer).__name__} {reason}. The penalty needs the optimizer's step size along a constant gradient; "
        "with any other one, a strength would not mean the objective loss + strength * Omega. Either pass "
        "`step_size=`, a function (parameter, group, state) that returns it, or use an optimizer that is known: "
        f"{known}."
    )
