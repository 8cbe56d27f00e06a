"""The proximal step after an optimizer step, and the little state that goes with it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from gossamer.errors import GossamerError
from gossamer.proximal.schedules import Schedule
from gossamer.proximal.steps import diagonal, step_size
from gossamer.regularizers import Regularizer, Rule

__all__ = ["ProximalStep"]

_STATE = "gossamer"  # the key in `optimizer.state_dict()`


class ProximalStep:
    """What `attach` returns: the proximal step of one regularizer behind one optimizer.

    It owns its state (the step number; after `hold`, which weights are zero) and puts it into
    `optimizer.state_dict()`; the optimizer's own `state` is only read.
    """

    def __init__(self, regularizer: Regularizer, *, adaptive: bool, schedule: Schedule) -> None:
        self.regularizer = regularizer
        self.steps = 0
        self._adaptive = adaptive
        self._schedule = schedule
        self._siblings: list[ProximalStep] = []
        self._key = 0
        self._zeros: dict[str, Tensor] | None = None
        self._loading: dict[str, Any] | None = None
        self._hooks: list[Any] = []

    @property
    def held(self) -> bool:
        """Whether `hold` has been called."""
        return self._zeros is not None

    @torch.no_grad()
    def hold(self) -> None:
        """End the penalty and keep the zeros: from now on what is zero stays exactly zero, whatever momentum says.

        A final phase of training with `hold` gives the surviving weights back what the penalty took from them.
        """
        self._zeros = {rule.name: rule.weight.parameter == 0 for rule in self.regularizer.rules}

    def remove(self) -> None:
        """Detach: the optimizer is as it was before `attach`. The weights stay as they are now."""
        for hook in self._hooks:
            hook.remove()
        if self._hooks:
            self._siblings.remove(self)
        self._hooks.clear()

    def select_(self, kept: Mapping[Tensor, Mapping[int, Tensor]]) -> None:
        """Follow weights that were made smaller: keep the given indices of the given dimensions of each weight."""
        if self._zeros is None:
            return
        for rule in self.regularizer.rules:
            for dimension, index in kept.get(rule.weight.parameter, {}).items():
                self._zeros[rule.name] = self._zeros[rule.name].index_select(dimension, index)

    def connect(self, optimizer: Optimizer, siblings: list[ProximalStep]) -> None:
        """Register the hooks and join the other proximal steps of this optimizer."""
        taken = {other._key for other in siblings}
        key = self._key = next(key for key in count() if key not in taken)  # tells them apart in the state dict
        self._siblings = siblings
        siblings.append(self)

        def save(optimizer: Optimizer, state_dict: dict[str, Any]) -> None:
            del optimizer
            state_dict.setdefault(_STATE, {})[key] = self._state()

        def read(optimizer: Optimizer, state_dict: dict[str, Any]) -> None:
            del optimizer
            self._loading = self._checked_state(state_dict.get(_STATE, {}).get(key))

        def load(optimizer: Optimizer) -> None:
            del optimizer
            self._load(self._loading)

        self._hooks = [
            optimizer.register_step_post_hook(self._after_step),
            optimizer.register_state_dict_post_hook(save),
            optimizer.register_load_state_dict_pre_hook(read),
            optimizer.register_load_state_dict_post_hook(load),
        ]

    # -- the step

    @torch.no_grad()
    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        del args, kwargs
        if _skipped(optimizer):
            return
        factor = self._strength_now()
        self.steps += 1
        groups = {parameter: group for group in optimizer.param_groups for parameter in group["params"]}
        active = [rule for rule in self.regularizer.rules if _was_stepped(rule.weight.parameter)]
        self._require_finite(active)
        for rule in active:
            weight = rule.weight.parameter
            if self._zeros is not None:
                weight.masked_fill_(self._zeros[rule.name], 0.0)
            elif factor > 0:
                step = factor * step_size(optimizer, groups[weight], optimizer.state[weight])
                if self._adaptive:
                    metric = diagonal(optimizer, groups[weight], optimizer.state[weight])
                    step = (step / metric.to(_computing_dtype(weight))).expand_as(weight)
                weight.copy_(rule.prox(weight.to(_computing_dtype(weight)), step))

    def _strength_now(self) -> float:
        factor = self._schedule(self.steps)
        if not (math.isfinite(factor) and factor >= 0):
            raise GossamerError(
                f"`schedule` must return a finite number, not negative; at step {self.steps} it returned {factor!r}."
            )
        return self.regularizer.strength * factor

    def _require_finite(self, rules: list[Rule]) -> None:
        # One look for all weights: a sum that is finite has finite terms; one that is not may only have overflowed.
        sums = [rule.weight.parameter.sum(dtype=torch.float32) for rule in rules]
        if not sums or math.isfinite(torch.stack([total.to(sums[0].device) for total in sums]).sum().item()):
            return
        for rule in rules:
            if not bool(torch.isfinite(rule.weight.parameter).all()):
                raise GossamerError(
                    f"The weights of `{rule.name}` are no longer finite after step {self.steps} of the optimizer. "
                    "The training has diverged: lower the learning rate, or clip the gradients."
                )

    # -- the state

    def _state(self) -> dict[str, Any]:
        return {"steps": self.steps, "weights": [rule.name for rule in self.regularizer.rules], "zeros": self._zeros}

    def _checked_state(self, state: dict[str, Any] | None) -> dict[str, Any] | None:
        if state is None:
            return None  # a checkpoint from before the regularizer was attached
        names = [rule.name for rule in self.regularizer.rules]
        if state["weights"] != names:
            raise GossamerError(
                f"The checkpoint was written with a regularizer on {', '.join(state['weights'])}; "
                f"the one attached now is on {', '.join(names)}. Attach the same regularizer before loading."
            )
        for rule in self.regularizer.rules if state["zeros"] else ():
            expected, received = rule.weight.parameter.shape, state["zeros"][rule.name].shape
            if expected != received:
                raise GossamerError(
                    f"The checkpoint holds the zeros of `{rule.name}` in the shape {tuple(received)}; the weight has "
                    f"the shape {tuple(expected)}. Load the checkpoint of the same network."
                )
        return state

    def _load(self, state: dict[str, Any] | None) -> None:
        if state is None:
            return
        self.steps = state["steps"]
        self._zeros = state["zeros"] and {
            rule.name: state["zeros"][rule.name].to(rule.weight.parameter.device) for rule in self.regularizer.rules
        }


def _skipped(optimizer: Optimizer) -> bool:
    """Whether GradScaler made a fused optimizer skip this step; for other optimizers it does not call `step` at all."""
    found_inf = getattr(optimizer, "found_inf", None)
    return found_inf is not None and bool(found_inf)


def _was_stepped(parameter: Tensor) -> bool:
    return parameter.requires_grad and parameter.grad is not None


def _computing_dtype(weight: Tensor) -> torch.dtype:
    return weight.dtype if weight.dtype == torch.float64 else torch.float32
