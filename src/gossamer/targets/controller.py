"""The strength that leads a network to a target: proportional-integral control of log strength on log size.

With progress t from 0 to 1, size n(t) and planned size p(t):

    e(t)         = log n(t) - log p(t), n smoothed over a hundredth of the run, e limited to [-1, 1]
    log strength = integral of ki e dt + kp e, with three times the gain where e < 0

The planned size falls from the size at the start to the aim, slightly above the target, in the first half of the run,

    log p = log aim + (1 - u)^2 (log start - log aim),   u from 0 to 1,

and then stays there. It falls fast first, because the strength that leads to a size is higher than the one that holds
it, and needs time to fall again before the last cut; and it arrives slowly, because weights that are zero do not come
back easily, and units that are zero do not come back at all. The higher gain below the plan has the same reason. There
is no derivative term and no momentum: both amplify the noise of the sizes.

A network of few units cannot have every size. Once the plan has settled, the integral does not grow while the size is
above it by less than one unit, where a stronger penalty would only make all weights smaller; the last cut removes it.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

__all__ = ["Controller"]

_LARGEST = 60.0
_LARGEST_UNIT = 0.3


@dataclass
class Controller:
    """The controller and its state.

    Attributes:
        aim: size at the end of the plan.
        origin: size at the start of the plan.
        start: progress at which the control starts.
        settled: progress at which the plan reaches its end.
        log_strength: logarithm of the present strength.
        unit: the largest unit, as a part of the present size.
        most: logarithm of the largest strength.
    """

    aim: float
    origin: float = 0.0
    start: float = 0.02
    settled: float = 0.5
    kp: float = 1.0
    ki: float = 12.0
    brake: float = 3.0
    smoothing: float = 0.01
    log_strength: float = -math.inf
    progress: float = 0.0
    smoothed: float = 0.0
    error: float = 0.0
    unit: float = 0.0
    most: float = _LARGEST

    @property
    def strength(self) -> float:
        """The present strength; 0 before the control starts."""
        return math.exp(self.log_strength)

    @property
    def bounded(self) -> bool:
        """Whether the strength has a bound, and need not lead all the way."""
        return self.most < _LARGEST

    def begin(self, strength: float, progress: float, size: float, stronger: float = math.inf) -> None:
        """Start with this strength, which may grow by this factor, and the plan at this size."""
        self.log_strength, self.progress = math.log(strength), progress
        self.most = min(_LARGEST, self.log_strength + math.log(stronger))
        self.smoothed, self.error = self._log(size), 0.0
        self.start, self.origin = progress, max(size, self.aim)

    def planned(self, progress: float) -> float:
        """Logarithm of the planned size."""
        ahead = 1 - min(1.0, max(0.0, (progress - self.start) / (self.settled - self.start)))
        return math.log(self.aim) + ahead**2 * math.log(self.origin / self.aim)

    def update(self, progress: float, size: float) -> None:
        """Set the strength from a measured size."""
        elapsed = progress - self.progress
        self.smoothed += (1 - math.exp(-elapsed / self.smoothing)) * (self._log(size) - self.smoothed)
        error = min(1.0, max(-1.0, self.smoothed - self.planned(progress)))
        gain = self.ki if error > 0 else self.brake * self.ki
        if progress > self.settled and 0 < error < min(_LARGEST_UNIT, self.unit):
            gain = 0.0
        self.log_strength += self.kp * (error - self.error) + gain * error * elapsed
        self.log_strength = min(self.most, max(-_LARGEST, self.log_strength))
        self.progress, self.error = progress, error

    def state(self) -> dict[str, float]:
        """All numbers."""
        return asdict(self)

    def load(self, state: dict[str, float]) -> None:
        """Set all numbers. States of earlier versions have no bound."""
        self.most = _LARGEST
        for name, value in state.items():
            setattr(self, name, float(value))

    def _log(self, size: float) -> float:
        return math.log(max(size, 1e-3 * self.aim))  # nothing left: far below any plan
