"""Where a training stands, without its tensors: which phase, how far, and what comes next."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from gossamer_lab.training.config import TrainingConfig

__all__ = ["Phase", "Progress", "learning_rate"]

Phase = Literal["sparsify", "hold", "done"]

# What is left of the learning rate when the first phase ends: at nothing, the penalty would do nothing either.
_LEFT_OF_RATE = 0.1


@dataclass(frozen=True)
class Progress:
    """The epochs behind us.

    Attributes:
        epoch: Epochs done, in all.
        phase: The phase of the next epoch; ``done`` when there is none.
        phase_epoch: Epochs done in this phase.
        objective: Of the last epoch, where the next may be compared with it; infinite otherwise.
    """

    epoch: int = 0
    phase: Phase = "sparsify"
    phase_epoch: int = 0
    objective: float = math.inf

    def after(self, objective: float, config: TrainingConfig) -> Progress:
        """Return where the training stands after one more epoch that ended with this objective."""
        done = self.phase_epoch + 1
        warming = self.phase == "sparsify" and done <= config.warm_up_epochs
        settled = config.tolerance is not None and not warming and self.objective - objective < config.tolerance
        if done < _length(self.phase, config) and not settled:
            return Progress(self.epoch + 1, self.phase, done, math.inf if warming else objective)
        follows: Phase = "hold" if self.phase == "sparsify" and config.hold_epochs > 0 else "done"
        return Progress(self.epoch + 1, follows)


def learning_rate(progress: Progress, part: float, config: TrainingConfig) -> float:
    """Return the learning rate at a part (0 to 1) of the next epoch."""
    passed = (progress.phase_epoch + part) / _length(progress.phase, config)
    cosine = 0.5 * (1 + math.cos(math.pi * passed))
    if progress.phase == "hold":
        return config.hold_learning_rate * cosine
    return config.learning_rate * (_LEFT_OF_RATE + (1 - _LEFT_OF_RATE) * cosine)


def _length(phase: Phase, config: TrainingConfig) -> int:
    return config.hold_epochs if phase == "hold" else config.sparsify_epochs
