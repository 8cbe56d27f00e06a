"""The hooks between an optimizer, with its wrappers, and a proximal step."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any, Protocol
from weakref import ref

from torch import Tensor, nn
from torch.optim import Optimizer

from gossamer.proximal.optimizers import moves_weights_later
from gossamer.proximal.state import mark, states_in, unmark, write_state
from gossamer.shrinking import register_state

__all__ = ["Connected", "Connection"]


class Connected(Protocol):
    """A proximal step, as its connection sees it."""

    def after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Follow a step of the optimizer."""
        ...

    def after_wrapper(self) -> None:
        """Follow a step of a wrapper that may have moved the weights once more."""
        ...

    def cut_(self, cut: Callable[[nn.Parameter, Tensor], Tensor]) -> None:
        """Follow weights that were made smaller."""
        ...

    def state(self) -> dict[str, Any]:
        """The state as plain data."""
        ...

    def check_state(self, state: dict[str, Any]) -> None:
        """Raise unless the state is of the same weights."""
        ...

    def load_state(self, state: dict[str, Any]) -> None:
        """Take a checked state over."""
        ...


class Connection:
    """All hooks of one proximal step.

    The step itself follows the innermost optimizer. Every level writes and reads the state, because nobody knows which one
    the user saves. A wrapper that may move weights after the optimizer inside, such as Lookahead, is followed too.
    """

    def __init__(self, step: Connected, levels: Sequence[Any], number: int) -> None:
        self.number = number  # tells the proximal steps of one optimizer apart in the state dict
        self._step = step
        self._levels = [ref(level) for level in levels]
        self._loading: dict[str, Any] | None = None
        stepping: Optimizer = levels[-1]
        self._hooks: list[Any] = [stepping.register_step_post_hook(step.after_step)]
        for level in levels:
            self._hooks.append(register_state(level, step))
            if hasattr(level, "_optimizer_state_dict_post_hooks"):  # PyTorch's constructor has run
                self._hooks.append(level.register_state_dict_post_hook(self._save))
                self._hooks.append(level.register_load_state_dict_pre_hook(self._read))
                self._hooks.append(level.register_load_state_dict_post_hook(self._load))
        wrappers = [level for level in levels[:-1] if moves_weights_later(level)]
        self._hooks += [_AfterStep(level, step.after_wrapper) for level in wrappers]
        self.has_wrappers = bool(wrappers)
        self.mark()

    @property
    def optimizer(self) -> Optimizer | None:
        """The optimizer that steps the weights, while it lives."""
        found: Optimizer | None = self._levels[-1]()
        return found

    def mark(self) -> None:
        """Say in the parameter groups of every level that something is attached."""
        for level in self._living():
            self._mark(level)

    def remove(self, *, last: bool) -> None:
        """Take the hooks away, and the mark with the last proximal step of an optimizer."""
        for hook in self._hooks:
            hook.remove()
        for level in self._living() if last else ():
            unmark(level)

    def _living(self) -> list[Any]:
        return [level for level in (reference() for reference in self._levels) if level is not None]

    def _save(self, optimizer: Optimizer, state_dict: dict[str, Any]) -> None:
        del optimizer
        write_state(state_dict, self.number, self._step.state())

    def _read(self, optimizer: Optimizer, state_dict: dict[str, Any]) -> None:
        """Before anything is loaded: a checkpoint of another regularizer must leave the optimizer as it is."""
        del optimizer
        states = states_in(state_dict["param_groups"]) or state_dict.get("gossamer", {})  # where it was at first
        self._loading = states.get(self.number)
        if self._loading is not None:
            self._step.check_state(self._loading)

    def _load(self, optimizer: Optimizer) -> None:
        if self._loading is not None:
            self._step.load_state(self._loading)
        self._mark(optimizer)

    def _mark(self, optimizer: Optimizer) -> None:
        waiting = states_in(optimizer.param_groups)
        waiting.pop(self.number, None)  # this step has it
        mark(optimizer, waiting)


class _AfterStep:
    """Call `action` after each `step` of an object that has no hooks of its own, as learning-rate schedulers do."""

    def __init__(self, owner: Any, action: Callable[[], None]) -> None:
        self._owner = ref(owner)
        self._before = vars(owner).get("step")
        self._active = True
        step = owner.step

        @functools.wraps(step)
        def step_and_act(own: Any, *args: Any, **kwargs: Any) -> Any:
            del own
            result = step(*args, **kwargs)
            if self._active:
                action()
            return result

        self._patched = MethodType(step_and_act, owner)  # a method: schedulers look for its function
        owner.step = self._patched

    def remove(self) -> None:
        """Restore `step`, unless somebody has wrapped it once more; then do nothing in it any longer."""
        self._active = False
        owner = self._owner()
        if owner is None or vars(owner).get("step") is not self._patched:
            return
        if self._before is None:
            del owner.step
        else:
            owner.step = self._before
