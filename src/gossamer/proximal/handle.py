"""The proximal step after each optimizer step, and its state."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gossamer.errors import GossamerError
from gossamer.proximal.fused import FusedStep, Move
from gossamer.proximal.plain import plain_step_
from gossamer.proximal.schedules import Schedule
from gossamer.proximal.steps import diagonal, group_of, step_sizes
from gossamer.regularizers import Regularizer, Rule
from gossamer.shrinking import register_state

__all__ = ["ProximalStep"]

_STATE = "gossamer"  # the key in `optimizer.state_dict()`


class ProximalStep:
    """The handle that `attach` returns: the proximal step of one regularizer after the steps of one optimizer.

    Its state (the number of steps; after `hold`, which weights are zero) is part of `optimizer.state_dict()`. The
    optimizer's own `state` is only read.
    """

    def __init__(
        self, regularizer: Regularizer, *, adaptive: bool, schedule: Schedule, fused: FusedStep | None = None
    ) -> None:
        self.regularizer = regularizer
        self.steps = 0
        self.fused = fused  # None: all weights take the plain implementation
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
        """End the penalty and keep the zeros: weights that are zero now stay exactly zero, the others train freely.

        A final phase of training with `hold` removes the bias of the penalty from the remaining weights.
        """
        self._zeros = {rule.name: rule.weight.parameter == 0 for rule in self.regularizer.rules}

    def remove(self) -> None:
        """Detach from the optimizer. The weights stay as they are."""
        for hook in self._hooks:
            hook.remove()
        if self._hooks:
            self._siblings.remove(self)
        self._hooks.clear()

    def cut_(self, cut: Callable[[nn.Parameter, Tensor], Tensor]) -> None:
        """Follow weights that have become smaller: slice the held zeros like the weights."""
        if self._zeros is not None:
            parameters = {rule.name: rule.weight.parameter for rule in self.regularizer.rules}
            self._zeros = {name: cut(parameters[name], zeros) for name, zeros in self._zeros.items()}

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
            register_state(optimizer, self),
        ]

    # -- the step

    @torch.no_grad()
    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        del args, kwargs
        if _skipped(optimizer):
            return
        factor = 0.0 if self.held else self._strength_now()
        self.steps += 1
        owned = group_of(optimizer)
        weights = [(rule, rule.weight.parameter) for rule in self.regularizer.rules]
        stepped = [(rule, weight) for rule, weight in weights if weight in owned and weight.grad is not None]
        if self._zeros is None and factor > 0:
            steps = step_sizes(optimizer, [weight for _, weight in stepped], factor)
            self._take(optimizer, [Move(*pair, step) for pair, step in zip(stepped, steps, strict=True)])
            return
        self._require_finite(stepped)
        if self._zeros is not None:
            for rule, weight in stepped:
                weight.masked_fill_(self._zeros[rule.name], 0.0)

    def _take(self, optimizer: Optimizer, moves: list[Move]) -> None:
        if self.fused is not None:
            plain, finite = self.fused.take(moves)
            if not finite:
                self._require_finite([(move.rule, move.weight) for move in moves])
            moves = plain
        self._require_finite([(move.rule, move.weight) for move in moves])
        groups = group_of(optimizer) if self._adaptive else {}
        for rule, weight, step in moves:
            if self._adaptive:
                metric = diagonal(optimizer, groups[weight], optimizer.state[weight])
                dtype = weight.dtype if weight.dtype == torch.float64 else torch.float32
                step = (step / metric.to(dtype)).expand_as(weight)
            plain_step_(rule, weight, step)

    def _strength_now(self) -> float:
        factor = self._schedule(self.steps)
        if not (math.isfinite(factor) and factor >= 0):
            raise GossamerError(
                f"`schedule` must return a finite number, not negative; at step {self.steps} it returned {factor!r}."
            )
        return self.regularizer.strength * factor

    def _require_finite(self, weights: Sequence[tuple[Rule, Tensor]]) -> None:
        # One check for all weights: a finite sum has finite terms; a sum that is not finite may only have overflowed.
        sums = [weight.sum(dtype=torch.float32) for _, weight in weights]
        if not sums or math.isfinite(torch.stack([total.to(sums[0].device) for total in sums]).sum().item()):
            return
        for rule, weight in weights:
            if not bool(torch.isfinite(weight).all()):
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
