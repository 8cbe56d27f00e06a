"""From the optimizer that a user has to the one that steps the weights, and to its step rule; or why there is none.

A wrapper keeps the optimizer that it calls in an attribute. The proximal step belongs behind the step of the innermost one,
which has the state and moves the weights: behind ZeroRedundancyOptimizer's own step each process would penalise
weights whose state is elsewhere, and SAM's `second_step` never calls SAM's `step`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.optim import LBFGS, Muon, Optimizer, Rprop

from gossamer.errors import GossamerError
from gossamer.proximal.measured import NotMeasurable, measured_rule
from gossamer.proximal.metric import StepRule
from gossamer.proximal.steps import KNOWN, Known
from gossamer.proximal.third_party import third_party

__all__ = ["is_partition", "known_step", "moves_weights_later", "unwrapped"]

# Where wrappers keep the optimizer inside: accelerate and most Lookaheads; SAM; timm; ZeRO; Lightning; schedule-free.
_INSIDE = ("optimizer", "base_optimizer", "_base_optimizer", "optim", "_optimizer", "base")

_ZERO = "torch.distributed.optim.zero_redundancy_optimizer.ZeroRedundancyOptimizer"
_ACCELERATE = "accelerate.optimizer.AcceleratedOptimizer"

_WITHOUT_STEP_SIZE: dict[type[Optimizer], str] = {
    Rprop: "moves each weight by the sign of its gradient, whatever its size",
    Muon: "makes the gradient of a matrix orthogonal, whatever its size, so that weights have no step sizes of their own",
    LBFGS: "moves along directions of an approximate Hessian that mix all weights, and takes it that nobody else moves them",
}


def unwrapped(optimizer: Any) -> tuple[Any, ...]:
    """The optimizer and those inside of it, from the outermost to the one that steps the weights.

    Raises:
        GossamerError: For what is no optimizer, and for wrappers that a proximal step does not go with.
    """
    levels = [optimizer]
    while (inner := _inside(levels[-1])) is not None:
        levels.append(inner)
    if not isinstance(levels[-1], Optimizer):
        raise GossamerError(
            f"`attach` needs a torch.optim.Optimizer; received {type(optimizer).__name__}. Pass the optimizer that steps "
            "the weights."
        )
    for level in levels:
        _refuse_averages(level)
    return tuple(levels)


def known_step(optimizer: Optimizer) -> Known:
    """The step rule of an optimizer that is no wrapper: known by its class, or measured.

    Raises:
        GossamerError: If the optimizer has no step size that a penalty could share.
    """
    owner = _defines_step(type(optimizer))
    known = KNOWN.get(owner) or third_party(optimizer, owner)
    if known is not None:
        return known
    if owner in _WITHOUT_STEP_SIZE:
        raise _refusal(optimizer, _WITHOUT_STEP_SIZE[owner])
    try:
        return Known(measured_rule(optimizer), adaptive=False)
    except NotMeasurable as finding:
        raise _refusal(optimizer, str(finding)) from finding


def moves_weights_later(wrapper: Any) -> bool:
    """Whether a wrapper may move weights after the step of the optimizer inside, as Lookahead does."""
    return not (_is(wrapper, _ZERO) or _is(wrapper, _ACCELERATE))


def is_partition(wrapper: Any) -> bool:
    """Whether the optimizer inside of a wrapper steps only the weights of this process, as ZeRO's does."""
    return _is(wrapper, _ZERO)


def _inside(optimizer: Any) -> Optimizer | None:
    if _is(optimizer, _ZERO) and optimizer._overlap_with_ddp:
        raise GossamerError(
            "ZeroRedundancyOptimizer(overlap_with_ddp=True) steps the weights during the backward pass, where no proximal "
            "step can follow. Use overlap_with_ddp=False."
        )
    for name in _INSIDE:
        inner = vars(optimizer).get(name) if hasattr(optimizer, "__dict__") else None
        if isinstance(inner, Optimizer) and inner is not optimizer:
            return inner
    return None


def _refuse_averages(level: Any) -> None:
    swaps = all(callable(getattr(type(level), name, None)) for name in ("train", "eval"))
    if swaps and not _is(level, _ACCELERATE):
        raise GossamerError(
            f"{type(level).__name__} has `train()` and `eval()`: like all schedule-free optimizers it evaluates averages of "
            "the weights that it trains, and an average of weights that are zero now and then is not zero. Use an "
            "optimizer that trains the weights themselves, such as torch.optim.AdamW with a learning-rate schedule."
        )


def _is(level: Any, name: str) -> bool:
    """Whether a level is of the class with this full name, which need not be importable."""
    return any(f"{kind.__module__}.{kind.__qualname__}" == name for kind in type(level).__mro__)


def _defines_step(kind: type[Optimizer]) -> type[Optimizer]:
    """The class whose `step` this class has. PyTorch wraps `step` for its hooks, in a subclass or in its base."""
    own = _without_hooks(kind.step)
    return [base for base in kind.__mro__ if issubclass(base, Optimizer) and _without_hooks(base.step) is own][-1]


def _without_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    while getattr(step, "hooked", False):
        step = step.__wrapped__  # type: ignore[attr-defined]
    return step


def _refusal(optimizer: Optimizer, reason: str) -> GossamerError:
    known = ", ".join(sorted({kind.__name__ for kind in KNOWN} | {"AdamW"}))
    return GossamerError(
        f"{type(optimizer).__name__} {reason}. So there is no step size with which a penalty of a given strength would mean "
        "the same objective. Either pass `step_size=`, a function (parameter, group, state) -> the step that this "
        f"optimizer takes along a constant gradient; or use one of {known}."
    )
