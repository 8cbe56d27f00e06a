"""The proximal step after each optimizer step, and its state."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gossamer.errors import GossamerError
from gossamer.layers import is_sharded, local_part
from gossamer.proximal.agreement import is_missing_somewhere
from gossamer.proximal.approach import Approach, zero_untrained_
from gossamer.proximal.connection import Connection
from gossamer.proximal.finite import require_finite
from gossamer.proximal.fused import FusedStep, Move
from gossamer.proximal.fused_units import FusedUnits
from gossamer.proximal.metric import StepRule
from gossamer.proximal.optimizers import is_nested_step
from gossamer.proximal.partition import Partition
from gossamer.proximal.places import Place, Places
from gossamer.proximal.plain import plain_step_
from gossamer.proximal.schedules import Schedule, factor_at
from gossamer.proximal.skipped import SkippedSteps
from gossamer.proximal.state import cannot_copy, is_marked, pending_states, require_same_weights
from gossamer.proximal.units import norms_before, restore_norms_, unit_step_
from gossamer.proximal.watch import Watch
from gossamer.regularizers import Regularizer, Rule
from gossamer.targets import Reached

__all__ = ["ProximalStep"]


class ProximalStep:
    """The handle that `attach` returns: the proximal step of one regularizer behind one optimizer.

    Its state, the number of steps and whether `hold` was called, is part of `optimizer.state_dict()`. The optimizer's
    own `state` is only read.
    """

    def __init__(
        self,
        regularizer: Regularizer,
        *,
        step_rule: StepRule,
        schedule: Schedule,
        fused: FusedStep | None = None,
        fused_units: FusedUnits | None = None,
        approach: Approach | None = None,
        watch: Watch,
        partition: Partition | None = None,
    ) -> None:
        self.regularizer = regularizer
        self.steps = 0
        self.fused = fused  # None: all weights take the plain implementation
        self.fused_units = fused_units  # likewise, for regularizers with units
        self._agreed = False
        self._step_rule = step_rule
        self._schedule = schedule
        self._approach = approach
        self._watch = watch
        self._skipped = SkippedSteps()
        self._partition = partition  # if the step needs weights whose optimizer state is in other processes
        self._places = Places(regularizer.rules)
        self._siblings: list[ProximalStep] = []
        self._connection: Connection | None = None
        self._zeros: dict[str, Tensor] | None = None
        self._hold_at_next_step = False  # after loading: the weights may be loaded after the optimizer
        self._dead_biases: list[tuple[Tensor, Tensor]] | None = None
        self._latest_zeros: dict[str, Tensor] = {}  # for wrappers that move weights later

    @property
    def strength(self) -> float:
        """The strength of the next proximal step."""
        return 0.0 if self.held else self._current_strength()

    @property
    def reached(self) -> Reached | None:
        """How the target was reached, once it is: the size before and after the last cut. Prints as a sentence."""
        return None if self._approach is None else self._approach.reached

    @property
    def held(self) -> bool:
        """Whether `hold` has been called."""
        return self._zeros is not None or self._hold_at_next_step

    def refer_to(self, full: float | None) -> float:
        """Let a target's fraction refer to this full size, if not None; return the size that it refers to."""
        assert self._approach is not None
        if full is not None:
            self._approach.refer_to(full)
        return self._approach.full

    @torch.no_grad()
    def hold(self) -> None:
        """End the penalty and keep the zeros: weights that are zero now stay exactly zero, the others train freely.

        A final phase of training with `hold` removes the bias of the penalty from the remaining weights.
        """
        units = self.regularizer.units
        # A bias or shift may be zero by chance: where only units are penalised, what stays zero are dead units.
        # The last cut of a target may leave a part of a unit, too; without weights and biases it counts as removed.
        dead = None if units is None or self.reached is not None else units.dead()
        self._zeros = {}
        for rule in self.regularizer.rules:
            if units is None or dead is None or rule.terms:
                self._zeros[rule.name] = local_part(self._places.parameter(rule)) == 0
            else:
                self._zeros[rule.name] = units.zeros_of(rule.weight, dead)

    @torch.no_grad()
    def zero_untrained(self) -> int:
        """Set weights to zero that have had no gradient since the start of training; return their number.

        In an adaptive metric weights wait for their first gradient. Weights of an input that is always zero, such as
        the border pixels of MNIST, never get one. The loss does not depend on them, so the objective is minimal with
        these weights at zero. Call this after `optimizer.step()` and before `zero_grad()`, at the end of training or
        before `hold()`. With optimizers that are not adaptive it changes nothing: the penalty acts on all weights.
        """
        optimizer = None if self._connection is None else self._connection.optimizer
        places = [] if optimizer is None else self._places.stepped(optimizer)
        if optimizer is None or not places:
            raise GossamerError(
                "`zero_untrained()` reads the optimizer's state and the gradients. Call it while the handle is "
                "attached, after `optimizer.step()` and before `optimizer.zero_grad()`."
            )
        counts = zero_untrained_(self._moves(optimizer, places, 1.0))
        stage = self.regularizer.stage
        return sum(counts) if stage is None else int(stage.total([place.rule.weight for place in places], counts))

    def remove(self) -> None:
        """Detach from the optimizer. The weights stay as they are."""
        if self._connection is not None:
            self._siblings.remove(self)
            self._connection.remove(last=not self._siblings)
            self._connection = None
            self._skipped.remove()

    def connect(self, levels: Sequence[Any], siblings: list[ProximalStep], number: int | None) -> None:
        """Register the hooks at all levels and join the other proximal steps; `number` is that of a checkpoint."""
        if number is None:
            taken = {other._connection.number for other in siblings if other._connection is not None}
            taken |= pending_states(levels[0].param_groups).keys()
            number = next(free for free in count() if free not in taken)
        self._siblings = siblings
        self._connection = Connection(self, levels, number, inside=self._partition is None)
        siblings.append(self)
        self._follow_gradients()

    def __deepcopy__(self, memo: Any) -> NoReturn:
        del memo
        raise cannot_copy("a handle of `attach`")

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        del protocol
        raise cannot_copy("a handle of `attach`")

    # -- the step

    def before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Find the zeros of a loaded model, before the optimizer moves them; look out for trouble."""
        del args, kwargs
        if self._hold_at_next_step:
            self._hold_at_next_step = False
            self.hold()
        if self._zeros is not None:
            if self._dead_biases is None:
                self._zero_dead_biases(optimizer)
        elif self._watch.is_due(self.steps):
            with torch.no_grad():
                warming = self._approach is None and self._schedule(self.steps) < 1
                self._watch.look(self.steps, self._places.stepped(optimizer), warming=warming)

    def after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Take the proximal step."""
        del args, kwargs
        connection = self._connection
        assert connection is not None  # the hook is removed with it
        self._agree_on_the_kernel()
        if _was_skipped(optimizer) or (connection.may_nest and is_nested_step(optimizer)):
            return
        if not is_marked(optimizer):
            connection.mark()  # someone has replaced the parameter groups
        factor = 0.0 if self.held else self._current_strength()
        self.steps += 1
        self._follow_gradients()
        with torch.no_grad():
            places = self._places.stepped(optimizer)
            if self._approach is not None and self._approach.cuts and not self.held:
                self._cut(self._approach, optimizer, places)
            elif factor > 0:
                self._take(self._moves(optimizer, places, factor))
            else:
                self._require_finite((rule, weight) for rule, weight, _ in places)
            if self._zeros is not None:
                for rule, weight, _ in places:
                    local_part(weight).masked_fill_(self._zeros[rule.name], 0.0)
                for bias, dead in self._dead_biases or ():
                    local_part(bias).masked_fill_(dead, 0.0)
            elif self._approach is not None and not self.held and self._approach.is_due(self.steps):
                self._approach.follow(self.steps, lambda: self._moves(optimizer, places, 1.0), self._take)
            if connection.has_wrappers:
                self._latest_zeros = {rule.name: local_part(weight) == 0 for rule, weight, _ in places}

    def _agree_on_the_kernel(self) -> None:
        """Before the first step: if a process has no kernel, none of them uses it."""
        if not self._agreed:
            self._agreed = True
            if (self.fused is not None or self.fused_units is not None) and is_missing_somewhere():
                self.fused = self.fused_units = None
                warnings.warn(
                    "A process has no C++ compiler, so all processes take the proximal step without the fused kernel, "
                    "many times slower on large weights: the weights of all of them have to stay the same bit by bit. "
                    "Install a compiler on all machines; `compile=False` silences this warning.",
                    RuntimeWarning,
                    stacklevel=2,
                )

    def _follow_gradients(self) -> None:
        """Those of the first weight: what is not finite anywhere behind it reaches it in the backward pass."""
        own = (self._places.parameter(rule) for rule in self.regularizer.rules)
        # `fully_shard` accumulates into other tensors.
        first = next((weight for weight in own if weight.requires_grad and not is_sharded(weight)), None)
        if first is not None:
            self._skipped.follow(first)

    def _cut(self, approach: Approach, optimizer: Optimizer, places: list[Place]) -> None:
        """The last proximal step on the way to a target; from then on, the zeros are held."""
        self._require_finite((rule, weight) for rule, weight, _ in places)
        approach.cut(self.steps, self._moves(optimizer, places, 1.0), self._take)
        self.hold()
        self._zero_dead_biases(optimizer)
        approach.verify()

    @torch.no_grad()
    def _zero_dead_biases(self, optimizer: Optimizer) -> None:
        """Find what units without ingoing weights still add to the network, and set it to zero.

        A target counts such units as removed. Only a function of the zeros that are held, so it is no state.
        """
        remaining = None if self.reached is None or self._approach is None else self._approach.remaining
        self._dead_biases = [] if remaining is None else remaining.dead_biases()
        state = optimizer.state if self._partition is None else self._partition.state
        for bias, dead in self._dead_biases:
            local_part(bias).masked_fill_(dead, 0.0)
            for value in state.get(bias, {}).values():
                if isinstance(value, Tensor) and value.shape == bias.shape:
                    local_part(value).masked_fill_(dead, 0.0)

    @torch.no_grad()
    def after_wrapper_step(self) -> None:
        """Restore the zeros of the last step: Lookahead averages the weights after it."""
        for rule in self.regularizer.rules:
            if rule.name in self._latest_zeros:
                local_part(self._places.parameter(rule)).masked_fill_(self._latest_zeros[rule.name], 0.0)
        self._latest_zeros = {}

    def _moves(self, optimizer: Optimizer, places: Sequence[Place], factor: float) -> list[Move]:
        state, step_rule = optimizer.state, self._step_rule
        if self._partition is None:
            steps = [step_rule(weight, group, state.get(weight, {})) for _, weight, group in places]
        else:
            steps = self._partition.steps(step_rule, places)
        return [
            Move(rule, weight, factor * size, metric)
            for (rule, weight, _), (size, metric) in zip(places, steps, strict=True)
        ]

    def _take(self, moves: list[Move]) -> None:
        units = self.regularizer.units
        if units is None:
            self._take_rules(moves)
            return
        finite = None if self.fused_units is None else self.fused_units.take(units, moves)
        if finite is not None:
            if not finite:
                self._require_finite((move.rule, move.weight) for move in moves)
            return
        norms = norms_before(units, moves)
        self._take_rules([move for move in moves if move.rule.terms])
        unit_step_(units, moves)
        restore_norms_(units, norms)

    def _take_rules(self, moves: list[Move]) -> None:
        if self.fused is not None:
            plain, finite = self.fused.take(moves)
            if not finite:
                self._require_finite((move.rule, move.weight) for move in moves)
            moves = plain
        if moves:
            self._require_finite((move.rule, move.weight) for move in moves)
        for move in moves:
            plain_step_(*move)

    def _current_strength(self) -> float:
        if self._approach is not None:
            return self._approach.strength
        assert self.regularizer.strength is not None  # or there is a target
        return self.regularizer.strength * factor_at(self._schedule, self.steps)

    def _require_finite(self, weights: Iterable[tuple[Rule, Tensor]]) -> None:
        require_finite(weights, self.steps)

    # -- the state

    def cut_(self, cut: Callable[[nn.Parameter, Tensor], Tensor]) -> None:
        """Follow weights that have become smaller: cut the masks of the held zeros, and the units, like the weights."""
        spread = self.regularizer.units is not None or self._approach is not None
        if spread and self.regularizer.stage is not None:
            raise GossamerError(
                "`shrink_` with this optimizer would change one stage of a pipeline, and the other processes have its "
                "units and count its size. Gather the stages and shrink the whole model after training "
                "(docs/scaling.md)."
            )
        if self.regularizer.units is not None:
            self.regularizer.units.cut_(cut)
        if self._zeros is not None:
            parameters = {rule.name: rule.weight.parameter for rule in self.regularizer.rules}
            self._zeros = {name: cut(parameters[name], zeros) for name, zeros in self._zeros.items()}
            self._dead_biases = None

    def state(self) -> dict[str, Any]:
        """The state as plain data. The held zeros are not part of it: the weights of the checkpoint have them."""
        rules = self.regularizer.rules
        shapes = [list(rule.weight.shape) for rule in rules]
        state = {"steps": self.steps, "held": self.held, "weights": [rule.name for rule in rules], "shapes": shapes}
        return state if self._approach is None else {**state, "target": self._approach.state()}

    def check_state(self, state: dict[str, Any]) -> None:
        """Raise if the state belongs to other weights or other shapes."""
        require_same_weights(state, self.regularizer.rules)
        if self._approach is not None and "target" in state:
            self._approach.check_state(state["target"])

    def load_state(self, state: dict[str, Any]) -> None:
        """Load a checked state."""
        self.steps = int(state["steps"])
        self._zeros, self._hold_at_next_step = None, bool(state.get("held"))
        self._dead_biases = None
        if self._approach is not None and "target" in state:
            self._approach.load_state(state["target"])
        if zeros := state.get("zeros"):  # checkpoints of version 0.1 have the masks
            devices = {rule.name: rule.weight.parameter.device for rule in self.regularizer.rules}
            self._zeros = {name: mask.to(devices[name]) for name, mask in zeros.items()}


def _was_skipped(optimizer: Optimizer) -> bool:
    """Whether GradScaler made a fused optimizer skip its step; other optimizers are not called in that case."""
    found_inf = getattr(optimizer, "found_inf", None)
    return found_inf is not None and bool(found_inf)
