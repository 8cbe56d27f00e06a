"""The way to a target: when the size is measured, what the strength is, and when the last cut is due.

The parts of the way by progress, the fraction of the steps:

    0 to 0.02     no penalty: the optimizer's averages build up
    0.02          the first strength: the one with which the penalty alone would set half of one weight tensor to zero
                  during the approach, and less than half of the others
    0.02 to 0.5   approach: the planned size falls to the aim, slightly above the target
    0.5 to 0.92   the size stays, the strength settles
    0.92 to 1     the last cut, as soon as the size is close to the target; at 1 in any case

Where whole units count and are the groups of the regularizer, and normalisations follow on weights, the strength grows
to eight times the first one at most, and the last cut is taken as soon as the size is close to the target, at 0.6 in
any case. There units stay alive while the strength grows, and then leave nearly at once: a strength that follows the
size becomes so large that the units which stay are damaged too. And a unit whose incoming and outgoing weights are zero
gets no gradient and does not come back, so a network that is too small stays too small. A strength of the user's own is
no measure of what is too strong: it has no bound, and only the size decides when the last cut is taken early.

After the last cut the zeros are held, and the remaining weights recover. If the regularizer has a strength of its own,
the approach starts with it at the first step.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from gossamer.errors import GossamerError
from gossamer.layers import local_part
from gossamer.penalties import L2, Group, Penalty
from gossamer.proximal.cut import MISSED, Take, cut_, step_to_half
from gossamer.proximal.fused import Move
from gossamer.proximal.remote import over_stages
from gossamer.proximal.watch import SparsityWarning
from gossamer.regularizers import Regularizer
from gossamer.regularizers.shards import total_over_shards
from gossamer.targets import Controller, Reached, Size, Target

__all__ = ["FEWEST_STEPS", "Approach", "checked_steps", "makes_zeros", "require_reachable", "zero_untrained_"]

_MEASUREMENTS = 300  # of the estimated size, in a run
_CALIBRATIONS = 6  # by the exact size
FEWEST_STEPS = 50
"""The size has to be measured often enough to lead the strength to a target."""
_AIM = {"params": 1.03, "flops": 1.03, "dense_params": 1.1, "dense_flops": 1.1, "bytes": 1.03}
_ANY_STRENGTH = 1e-4  # to begin with, where the penalty alone sets nothing to zero
_STRONGER, _LATEST = 8.0, 0.6  # times the first strength, and progress at the last cut, where units leave at once
_FAR = 2.0  # times the target: the strength has not led there


class _Window(NamedTuple):
    """When the last cut may be taken before the last step: from which progress on, at which multiples of the target."""

    start: float
    low: float
    high: float

    def has(self, progress: float, size: float) -> bool:
        return progress >= self.start and self.low <= size <= self.high


def _leave_at_once(size: Size, regularizer: Regularizer) -> bool:
    """Whether whole units count, are penalised, and stay alive until nearly all leave at once."""
    units = regularizer.units
    return size.counts_units and units is not None and bool(units.terms) and units.keeps_norms


class Approach:
    """The way of one regularizer to one target in a given number of steps.

    Attributes:
        target: the target.
        reached: the report, once the last cut has been taken.
    """

    def __init__(self, target: Target, regularizer: Regularizer, steps: int | None) -> None:
        self._steps = checked_steps(target, regularizer, steps)
        self.target = target
        self._regularizer = regularizer
        self.reached: Reached | None = None
        self._size = Size(target, regularizer)
        _require_reachable(self._size)
        self._controller = Controller(self._aim())
        self._window, self._stronger = _Window(0.92, 1.0, 1.04), math.inf
        if _leave_at_once(self._size, regularizer):
            self._window = _Window(0.0, 0.0, min(1.1, math.sqrt(self._size.full / self._size.asked)))
            self._stronger = _STRONGER
        if regularizer.strength is not None:  # a training that goes on: at once, or the zeros that it has are lost
            self._controller.begin(regularizer.strength, 0.0, self._size.estimate())
        self._every = max(1, self._steps // _MEASUREMENTS)
        self._calibrated = 0.0  # progress of the last exact measurement
        self._before: float | None = None  # size before the last cut; set if that is due at the next step

    @property
    def strength(self) -> float:
        """The present strength."""
        return self._controller.strength

    @property
    def remaining(self) -> Any:
        """What `shrink` would leave; None without an example."""
        return self._size.remaining

    def is_due(self, step: int) -> bool:
        """Whether to measure after the step of this number."""
        return step % self._every == 0 or step >= self._steps - 1

    @property
    def cuts(self) -> bool:
        """Whether the next proximal step is the last cut."""
        return self._before is not None and self.reached is None

    def cut(self, step: int, moves: Sequence[Move], take: Take) -> None:
        """Take the proximal step that leaves the size that was asked for; from above or, if fewer are left, below."""
        assert self._before is not None
        moves, take = over_stages(moves, take, self._regularizer)
        unit_costs = [self._size.unit_cost(move.rule.weight) for move in moves]
        cut_(moves, take, self._size.exact, self._size.asked, unit_costs, self._regularizer.stage)
        self.reached = Reached(self.target, self._size.full, self._before, self._size.exact(), step, self.strength)
        if self.reached.after < MISSED * self._size.asked:
            self._warn_of_miss(self.reached)

    def verify(self) -> None:
        """After the last cut and without dead biases: compare with what `shrink` really leaves."""
        size = self._size.verified()
        if size is None or self.reached is None:
            return
        if size > 1.01 * self.reached.after:
            warnings.warn(
                f"The target {self.target} is met by the units that carry a signal, but `shrink` leaves "
                f"{self.target.told(size, self._size.full)}: it has to keep units, mostly because sizes are hard-coded "
                "in `forward`. `print(gossamer.plan(model, example))` names them.",
                SparsityWarning,
                stacklevel=2,
            )
        self.reached = replace(self.reached, after=size)

    def follow(self, step: int, moves: Callable[[], Sequence[Move]], take: Take) -> None:
        """Measure, and set the strength of the next steps.

        Args:
            step: the number of steps so far.
            moves: gives the proximal steps at strength 1.
            take: takes proximal steps.
        """
        controller, progress = self._controller, step / self._steps
        if progress < controller.start:
            return
        if controller.strength == 0:
            first = self._first_strength(moves(), take)
            if first is None:
                controller.begin(_ANY_STRENGTH, progress, self._size.estimate())
            else:
                controller.begin(first, progress, self._size.estimate(), self._stronger)
            return
        size = self._measured(step, moves)
        due = step >= self._steps - 1 or (controller.bounded and progress >= _LATEST)
        if due or self._window.has(progress, size / self._size.asked):
            self._before = size
            if not controller.bounded:
                self._warn_if_far(size)
        else:
            controller.update(progress, size)

    def state(self) -> dict[str, Any]:
        """The state as plain data."""
        return {
            "kind": self.target.kind,
            "value": self.target.value,
            "steps": self._steps,
            "full": self._size.full,
            "factor": self._size.factor,
            "calibrated": self._calibrated,
            "before": self._before,
            "controller": self._controller.state(),
            "reached": None if self.reached is None else self.reached.to_dict(),
        }

    def check_state(self, state: dict[str, Any]) -> None:
        """Raise if the state is of another target."""
        if (state["kind"], state["value"], state["steps"]) != (self.target.kind, self.target.value, self._steps):
            raise GossamerError(
                f"The checkpoint was written with Target({state['kind']}={state['value']}) and steps={state['steps']}; "
                f"attached now: Target({self.target.kind}={self.target.value}) and steps={self._steps}. Attach with "
                "the same target and steps."
            )

    def load_state(self, state: dict[str, Any]) -> None:
        """Load a checked state. Sizes refer to the full network, which may have been larger than the present one."""
        self._size.full, self._size.factor = float(state["full"]), float(state["factor"])
        self._calibrated, self._before = float(state["calibrated"]), state["before"]
        self._controller.load(state["controller"])
        reached = state["reached"]
        self.reached = None if reached is None else Reached.from_dict(reached)

    def refer_to(self, full: float) -> None:
        """Let fractions refer to this full size: that of the network before units were removed."""
        self._size.full = full
        self._controller.aim = self._aim()

    @property
    def full(self) -> float:
        """The size that fractions refer to."""
        return self._size.full

    def _aim(self) -> float:
        return min(self._size.full, _AIM[self.target.kind] * self._size.asked)

    def _first_strength(self, moves: Sequence[Move], take: Take) -> float | None:
        """Steps of the approach add up: this many of them set half of a weight tensor to zero, without a gradient.

        None if no step does.
        """
        step = step_to_half(*over_stages(moves, take, self._regularizer), self._regularizer.stage)
        approach = self._steps * (self._controller.settled - self._controller.start)
        return None if step is None else step / approach

    def _measured(self, step: int, moves: Callable[[], Sequence[Move]]) -> float:
        """The size: estimated, exact from time to time and where the last cut may be due."""
        size, progress = self._size.estimate(), step / self._steps
        near = progress >= self._window.start and size <= 1.2 * self._size.asked
        if near or step >= self._steps - 1 or progress - self._calibrated >= 1 / _CALIBRATIONS:
            self._calibrated = progress
            zero_untrained_(moves())
            size = self._size.calibrate()
            self._controller.unit = self._size.largest_unit()
        return size

    def _warn_if_far(self, size: float) -> None:
        if size > _FAR * self._size.asked:
            warnings.warn(
                f"The strength has led to {self.target.told(size, self._size.full)} in {self._steps} steps; the target "
                f"is {self.target}, so the last cut is large and costs accuracy. Give more steps, or ask for more.",
                SparsityWarning,
                stacklevel=2,
            )

    def _warn_of_miss(self, reached: Reached) -> None:
        told = self.target.told
        how = "before the last cut" if reached.before <= self._size.asked else "by the last cut"
        warnings.warn(
            f"The network has fallen to {told(reached.after, reached.full)} {how}; the target is {self.target}. Most "
            "units were connected by a few weights, which became zero. Give more steps or a larger learning rate, or "
            "ask for more.",
            SparsityWarning,
            stacklevel=2,
        )


def zero_untrained_(moves: Sequence[Move]) -> list[int]:
    """Set weights to zero that have had no gradient yet, and so wait in an adaptive metric; return their numbers."""
    counts = [0] * len(moves)
    for index, move in enumerate(moves):
        if move.metric is not None and move.rule.terms:
            own = local_part(move.weight)
            untrained = (local_part(move.metric.inverse()) == 0) & (own != 0)
            own.masked_fill_(untrained, 0.0)
            counts[index] = int(total_over_shards(move.weight, untrained.sum()))
    return counts


def makes_zeros(regularizer: Regularizer) -> bool:
    """Whether any penalty of the regularizer sets weights to zero."""
    on_units = regularizer.units is not None and bool(regularizer.units.terms)
    return on_units or any(not _only_shrinks(term.penalty) for rule in regularizer.rules for term in rule.terms)


def _only_shrinks(penalty: Penalty) -> bool:
    return isinstance(penalty, L2) or (isinstance(penalty, Group) and isinstance(penalty.inner, L2))


def checked_steps(target: Target, regularizer: Regularizer, steps: int | None) -> int:
    """The number of steps to a target.

    Raises:
        GossamerError: If they are too few, or the regularizer cannot be driven to a target.
    """
    if not isinstance(target, Target):
        raise GossamerError(f"`target` must be a gossamer.Target, such as Target(params=0.05); received {target!r}.")
    if steps is None:
        raise GossamerError("`target` needs `steps`: the number of optimizer steps after which it must be reached.")
    whole = isinstance(steps, int) and not isinstance(steps, bool)
    if not whole or steps < FEWEST_STEPS:
        raise GossamerError(
            f"`steps` must be an integer, at least {FEWEST_STEPS}: the size has to be measured often enough to lead "
            f"the strength to a target; received {steps!r}."
        )
    if not makes_zeros(regularizer):
        raise GossamerError(
            "A target needs a penalty that sets weights to zero; L2 only shrinks them. Use gossamer.l1, "
            "gossamer.integrated_tl1 or another regularizer."
        )
    if regularizer.strength == 0:
        raise GossamerError("A target cannot start from `strength` 0. Leave the strength out.")
    return steps


def require_reachable(target: Target, regularizer: Regularizer) -> None:
    """Raise `GossamerError` if not even one weight or unit in each layer is small enough for the target."""
    _require_reachable(Size(target, regularizer))


def _require_reachable(size: Size) -> None:
    smallest = size.smallest()
    if size.asked < smallest:
        told = size.target.told
        raise GossamerError(
            f"The target {size.target} cannot be reached: with one weight or unit left in each regularized layer this "
            f"network still has {told(math.ceil(smallest), size.full)}. Ask for at least that, or regularize the "
            "layers that `only` and `skip` leave out."
        )
