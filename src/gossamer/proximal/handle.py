"""The proximal step after an optimizer step, and the little state that goes with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gossamer.errors import GossamerError
from gossamer.proximal.connection import Connection
from gossamer.proximal.fused import FusedStep, Move
from gossamer.proximal.metric import StepRule
from gossamer.proximal.places import Place, Places
from gossamer.proximal.plain import plain_step_
from gossamer.proximal.schedules import Schedule
from gossamer.proximal.state import cannot_copy, is_marked, states_in
from gossamer.regularizers import Regularizer, Rule

__all__ = ["ProximalStep"]


class ProximalStep:
    """What `attach` returns: the proximal step of one regularizer behind one optimizer.

    It owns its state (the step number; after `hold`, which weights are zero) and puts it into
    `optimizer.state_dict()`; the optimizer's own `state` is only read.
    """

    def __init__(
        self, regularizer: Regularizer, *, step_rule: StepRule, schedule: Schedule, fused: FusedStep | None = None
    ) -> None:
        self.regularizer = regularizer
        self.steps = 0
        self.fused = fused  # None: every weight takes the plain implementation
        self._step_rule = step_rule
        self._schedule = schedule
        self._places = Places(regularizer.rules)
        self._siblings: list[ProximalStep] = []
        self._connection: Connection | None = None
        self._zeros: dict[str, Tensor] | None = None
        self._zeros_now: dict[str, Tensor] = {}  # for wrappers that move weights after the optimizer inside

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

    @torch.no_grad()
    def zero_untrained(self) -> int:
        """Set the weights to zero that have had no gradient in the whole training; return how many there are.

        In the metric of an adaptive optimizer a weight waits for its first gradient. Some wait for ever: those that read
        an input which is always zero, such as the border pixels of MNIST. The loss does not depend on them, so the
        objective has its minimum with them at zero. Call this between `optimizer.step()` and `zero_grad()`, before
        `hold()` or at the end of the training. Under other optimizers the penalty reaches such weights, and nothing is done.
        """
        optimizer = None if self._connection is None else self._connection.optimizer
        places = [] if optimizer is None else self._places.stepped(optimizer)
        if optimizer is None or not places:
            raise GossamerError(
                "`zero_untrained()` looks at the state and the gradients of the optimizer: call it while the handle is "
                "attached, after `optimizer.step()` and before `optimizer.zero_grad()`."
            )
        total = 0
        for move in self._moves(optimizer, places, 1.0):
            if move.metric is not None:
                untrained = (move.metric.inverse() == 0) & (move.weight != 0)
                move.weight.masked_fill_(untrained, 0.0)
                total += int(untrained.sum())
        return total

    def remove(self) -> None:
        """Detach: the optimizer is as it was before `attach`. The weights stay as they are now."""
        if self._connection is not None:
            self._siblings.remove(self)
            self._connection.remove(last=not self._siblings)
            self._connection = None

    def connect(self, levels: Sequence[Any], siblings: list[ProximalStep], number: int | None) -> None:
        """Follow the optimizer, with its wrappers, and join its other proximal steps; `number`: that in a checkpoint."""
        taken = {other._connection.number for other in siblings if other._connection is not None}
        taken |= states_in(levels[0].param_groups).keys()
        self._siblings = siblings
        self._connection = Connection(self, levels, next(n for n in count() if n not in taken) if number is None else number)
        siblings.append(self)

    def __deepcopy__(self, memo: Any) -> NoReturn:
        del memo
        raise cannot_copy("a handle of `attach`")

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        del protocol
        raise cannot_copy("a handle of `attach`")

    # -- the step

    def after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Take the proximal step; the hook that follows the optimizer's own."""
        del args, kwargs
        assert self._connection is not None  # the hook goes with it
        if _skipped(optimizer):
            return
        if not is_marked(optimizer):
            self._connection.mark()  # somebody has put other parameter groups in their place
        factor = 0.0 if self.held else self._strength_now()
        self.steps += 1
        with torch.no_grad():
            places = self._places.stepped(optimizer)
            if factor > 0:
                self._take(self._moves(optimizer, places, factor))
            else:
                self._require_finite((rule, weight) for rule, weight, _ in places)
            if self._zeros is not None:
                _zero_(places, self._zeros)
            if self._connection.has_wrappers:
                self._zeros_now = {rule.name: weight == 0 for rule, weight, _ in places}

    @torch.no_grad()
    def after_wrapper(self) -> None:
        """Keep the zeros of the step that a wrapper has just made its own of: averages of weights have none."""
        for rule in self.regularizer.rules:
            if rule.name in self._zeros_now:
                rule.weight.parameter.masked_fill_(self._zeros_now[rule.name], 0.0)
        self._zeros_now = {}

    def _moves(self, optimizer: Optimizer, places: Iterable[Place], factor: float) -> list[Move]:
        moves, state, step_rule = [], optimizer.state, self._step_rule
        for rule, weight, group in places:
            size, metric = step_rule(weight, group, state.get(weight, {}))
            moves.append(Move(rule, weight, factor * size, metric))
        return moves

    def _take(self, moves: list[Move]) -> None:
        if self.fused is not None:
            plain, finite = self.fused.take(moves)
            if not finite:
                self._require_finite((move.rule, move.weight) for move in moves)
            moves = plain
        if moves:
            self._require_finite((move.rule, move.weight) for move in moves)
        for move in moves:
            plain_step_(*move)

    def _strength_now(self) -> float:
        factor = self._schedule(self.steps)
        try:
            value = float(factor)
        except (TypeError, ValueError):
            value = math.nan
        if not 0 <= value < math.inf:
            raise GossamerError(
                f"`schedule` must return a finite number, not negative; at step {self.steps} it returned {factor!r}."
            )
        return self.regularizer.strength * value

    def _require_finite(self, weights: Iterable[tuple[Rule, Tensor]]) -> None:
        # One look for all weights: a sum that is finite has finite terms; one that is not may only have overflowed.
        weights = list(weights)
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

    def cut_(self, cut: Callable[[nn.Parameter, Tensor], Tensor]) -> None:
        """Follow weights that were made smaller: keep of the held zeros what is kept of the weights."""
        if self._zeros is not None:
            parameters = {rule.name: rule.weight.parameter for rule in self.regularizer.rules}
            self._zeros = {name: cut(parameters[name], zeros) for name, zeros in self._zeros.items()}

    def state(self) -> dict[str, Any]:
        """The state as plain data."""
        return {"steps": self.steps, "weights": [rule.name for rule in self.regularizer.rules], "zeros": self._zeros}

    def check_state(self, state: dict[str, Any]) -> None:
        """Raise unless the state is of the same weights, of the same shapes."""
        names = [rule.name for rule in self.regularizer.rules]
        if list(state["weights"]) != names:
            raise GossamerError(
                f"The checkpoint was written with a regularizer on {', '.join(state['weights'])}; "
                f"the one attached now is on {', '.join(names)}. Attach the same regularizer, or, to begin anew, delete the "
                "state of the old one: `del checkpoint['param_groups'][0]['gossamer']`, or the same of a loaded optimizer."
            )
        for rule in self.regularizer.rules if state["zeros"] else ():
            expected, received = rule.weight.parameter.shape, state["zeros"][rule.name].shape
            if expected != received:
                raise GossamerError(
                    f"The checkpoint holds the zeros of `{rule.name}` in the shape {tuple(received)}; the weight has "
                    f"the shape {tuple(expected)}. Load the checkpoint of the same network."
                )

    def load_state(self, state: dict[str, Any]) -> None:
        """Take a checked state over."""
        self.steps = int(state["steps"])
        zeros = state["zeros"]
        self._zeros = zeros and {
            rule.name: zeros[rule.name].to(rule.weight.parameter.device) for rule in self.regularizer.rules
        }


def _zero_(places: Iterable[Place], zeros: dict[str, Tensor]) -> None:
    for rule, weight, _ in places:
        weight.masked_fill_(zeros[rule.name], 0.0)


def _skipped(optimizer: Optimizer) -> bool:
    """Whether GradScaler made a fused optimizer skip this step; for other optimizers it does not call `step` at all."""
    found_inf = getattr(optimizer, "found_inf", None)
    return found_inf is not None and bool(found_inf)
