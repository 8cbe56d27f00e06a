"""The hooks that connect a proximal step to an optimizer and its wrappers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any, Protocol
from weakref import ref

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gossamer.proximal.optimizers import may_nest, moves_weights_later
from gossamer.proximal.state import mark, pending_states, unmark, write_state
from gossamer.shrinking import register_state

__all__ = ["Connected", "Connection"]


class Connected(Protocol):
    """What a connection needs of a proximal step."""

    def before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Run before a step of the optimizer."""
        ...

    def after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Run after a step of the optimizer."""
        ...

    def after_wrapper_step(self) -> None:
        """Run after a step of a wrapper that may have moved the weights again."""
        ...

    def cut_(self, cut: Callable[[nn.Parameter, Tensor], Tensor]) -> None:
        """Follow weights that have become smaller."""
        ...

    def state(self) -> dict[str, Any]:
        """The state as plain data."""
        ...

    def check_state(self, state: dict[str, Any]) -> None:
        """Raise if the state belongs to other weights."""
        ...

    def load_state(self, state: dict[str, Any]) -> None:
        """Load a checked state."""
        ...


class Connection:
    """All hooks of one proximal step.

    The step follows the innermost optimizer; without `inside`, the one around it, which has sent the weights to all
    processes by then (ZeroRedundancyOptimizer). State is saved and loaded at every level, since the user may save any
    of them. Wrappers that may move weights after the optimizer inside, such as Lookahead, are followed as well.
    """

    def __init__(self, step: Connected, levels: Sequence[Any], number: int, *, inside: bool = True) -> None:
        self.number = number  # identifies the proximal step among those of the same optimizer
        self._step = step
        self._levels = [ref(level) for level in levels]
        self._loading: dict[str, Any] | None = None
        stepping: Optimizer = levels[-1 if inside else -2]
        self._stepping = ref(stepping)
        self.may_nest = may_nest(type(stepping))
        # A compiled `optimizer.step` must not be traced into the proximal step.
        untraced: Callable[..., Any] = torch.compiler.disable
        self._hooks: list[Any] = [
            stepping.register_step_pre_hook(untraced(step.before_step)),
            stepping.register_step_post_hook(untraced(step.after_step)),
        ]
        for level in levels:
            self._hooks.append(register_state(level, step))
            if hasattr(level, "_optimizer_state_dict_post_hooks"):  # not every wrapper calls Optimizer.__init__
                self._hooks.append(level.register_state_dict_post_hook(self._save))
                self._hooks.append(level.register_load_state_dict_pre_hook(self._check))
                self._hooks.append(level.register_load_state_dict_post_hook(self._load))
        wrappers = [level for level in levels[:-1] if moves_weights_later(level)]
        self._hooks += [_AfterStep(wrapper, step.after_wrapper_step) for wrapper in wrappers]
        self.has_wrappers = bool(wrappers)
        self.mark()

    @property
    def optimizer(self) -> Optimizer | None:
        """The optimizer that steps the weights; None once it is gone."""
        return self._stepping()

    def mark(self) -> None:
        """Mark the parameter groups of every level as attached."""
        for level in self._alive():
            self._mark(level)

    def remove(self, *, last: bool) -> None:
        """Remove the hooks; remove the mark together with the last proximal step of an optimizer."""
        for hook in self._hooks:
            hook.remove()
        for level in self._alive() if last else ():
            unmark(level)

    def _alive(self) -> list[Any]:
        return [level for level in (reference() for reference in self._levels) if level is not None]

    def _mark(self, optimizer: Optimizer) -> None:
        pending = pending_states(optimizer.param_groups)
        pending.pop(self.number, None)  # picked up by this step
        mark(optimizer, pending)

    def _save(self, optimizer: Optimizer, state_dict: dict[str, Any]) -> None:
        del optimizer
        write_state(state_dict, self.number, self._step.state())

    def _check(self, optimizer: Optimizer, state_dict: dict[str, Any]) -> None:
        """Check before anything is loaded: the checkpoint of another regularizer must not change the optimizer."""
        del optimizer
        states = pending_states(state_dict["param_groups"]) or state_dict.get("gossamer", {})  # its place in 0.1
        self._loading = states.get(self.number)
        if self._loading is not None:
            self._step.check_state(self._loading)

    def _load(self, optimizer: Optimizer) -> None:
        if self._loading is not None:
            self._step.load_state(self._loading)
        self._mark(optimizer)


class _AfterStep:
    """Run `action` after each `step` of an object, by replacing its method as learning-rate schedulers do."""

    def __init__(self, owner: Any, action: Callable[[], None]) -> None:
        self._owner = ref(owner)
        self._replaced = vars(owner).get("step")
        self._active = True
        step = owner.step

        @functools.wraps(step)
        def step_and_act(own: Any, *args: Any, **kwargs: Any) -> Any:
            del own
            result = step(*args, **kwargs)
            if self._active:
                action()
            return result

        self._method = MethodType(step_and_act, owner)  # schedulers need the `__func__` of a method
        owner.step = self._method

    def remove(self) -> None:
        """Restore `step`; if someone has replaced it since, only stop acting."""
        self._active = False
        owner = self._owner()
        if owner is None or vars(owner).get("step") is not self._method:
            return
        if self._replaced is None:
            del owner.step
        else:
            owner.step = self._replaced
