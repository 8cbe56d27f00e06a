"""The schedule of a run: phases, early stopping and learning rate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from gossamer_lab.training.config import TrainingConfig

__all__ = ["Phase", "Progress", "learning_rate"]

Phase = Literal["sparsify", "hold", "done"]

# Final learning rate of the first phase, as a fraction of the initial one: at 0 the penalty would have no effect.
_FINAL_RATE = 0.1


@dataclass(frozen=True)
class Progress:
    """The state of the schedule between two epochs.

    Attributes:
        epoch: Number of finished epochs.
        phase: Phase of the next epoch; `done` if there is none.
        phase_epoch: Number of finished epochs of this phase.
        objective: Objective of the last epoch, if the next one is comparable; infinite otherwise.
    """

    epoch: int = 0
    phase: Phase = "sparsify"
    phase_epoch: int = 0
    objective: float = math.inf

    def after(self, objective: float, config: TrainingConfig) -> Progress:
        """Return the state after one more epoch with this objective."""
        done = self.phase_epoch + 1
        warming = self.phase == "sparsify" and done <= config.warm_up_epochs
        converged = config.tolerance is not None and not warming and self.objective - objective < config.tolerance
        if done < _length(self.phase, config) and not converged:
            return Progress(self.epoch + 1, self.phase, done, math.inf if warming else objective)
        following: Phase = "hold" if self.phase == "sparsify" and config.hold_epochs > 0 else "done"
        return Progress(self.epoch + 1, following)


def learning_rate(progress: Progress, fraction: float, config: TrainingConfig) -> float:
    """Return the learning rate at a fraction (0 to 1) of the next epoch."""
    passed = (progress.phase_epoch + fraction) / _length(progress.phase, config)
    cosine = 0.5 * (1 + math.cos(math.pi * passed))
    if progress.phase == "hold":
        return config.hold_learning_rate * cosine
    return config.learning_rate * (_FINAL_RATE + (1 - _FINAL_RATE) * cosine)


def _length(phase: Phase, config: TrainingConfig) -> int:
    return config.hold_epochs if phase == "hold" else config.sparsify_epochs
