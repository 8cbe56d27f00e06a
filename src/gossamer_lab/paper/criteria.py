"""Which trial of a search is taken: rules that value its figures, the lower the better, above 0 where it is refused.

The rule of the table asks for an accuracy and takes the smallest network; that of the stronger references asks for a
size and takes the most accurate one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from gossamer_lab.sweeps import Bisection, Study

__all__ = ["MostAccurate", "Smallest"]


@dataclass(frozen=True)
class Smallest:
    """The smallest geometric mean of multiply-adds and weights kept, at an accuracy close to that of no penalty.

    A stronger penalty leaves a smaller and less accurate network, so strengths are searched by halving. Where no trial
    is accurate enough, the most accurate has the lowest value.

    Attributes:
        drop: Accuracy that may be lost, as a fraction.
    """

    needs_dense: ClassVar[bool] = True
    drop: float

    def value(self, figures: Mapping[str, float]) -> float:
        """log10 of the mean, at most 0; above 1 by the accuracy that is missing."""
        missing = figures["accuracy_dense"] - self.drop - figures["accuracy"]
        if missing > 0 or figures["params_kept"] == 0:
            return 1 + max(0.0, missing)
        return math.log10(figures["flops_kept"] * figures["params_kept"]) / 2

    def study(self, name: str, strengths: tuple[float, ...], trials: int) -> Study:
        """How the strengths are tried."""
        return Bisection(name, {"strength": strengths}, trials)


@dataclass(frozen=True)
class MostAccurate:
    """The highest accuracy of a network that is not larger than asked for; where all are larger, the smallest.

    Attributes:
        flops_kept: Part of the multiply-adds that may be kept.
        params_kept: Part of the weights that may be kept.
    """

    needs_dense: ClassVar[bool] = False
    flops_kept: float
    params_kept: float

    def value(self, figures: Mapping[str, float]) -> float:
        """The negative accuracy; above 1, how many times too large the network is."""
        excess = max(figures["flops_kept"] / self.flops_kept, figures["params_kept"] / self.params_kept)
        return excess if excess > 1 else -figures["accuracy"]

    def study(self, name: str, strengths: tuple[float, ...], trials: int) -> Study:
        """How the strengths are tried: each of them."""
        return Study(name, {"strength": strengths}, trials)
