"""Selection criteria of the tuning: they map the figures of a trial to a value to minimise, positive if infeasible.

The table asks for an accuracy and takes the smallest network. The stronger references ask for a size and take the most
accurate network.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from gossamer_lab.sweeps import Bisection, Study

__all__ = ["MostAccurateWithinSize", "SmallestWithinDrop"]


@dataclass(frozen=True)
class SmallestWithinDrop:
    """The smallest geometric mean of kept MACs and weights, with at most `drop` less accuracy than no penalty.

    A stronger penalty gives a smaller and less accurate network, so strengths are bisected. If no trial is accurate
    enough, the most accurate one has the lowest value.

    Attributes:
        drop: Maximum loss of accuracy, as a fraction.
    """

    needs_dense: ClassVar[bool] = True
    drop: float

    def value(self, figures: Mapping[str, float]) -> float:
        """Return log10 of the mean, at most 0; if infeasible, 1 plus the missing accuracy."""
        shortfall = figures["accuracy_dense"] - self.drop - figures["accuracy"]
        if shortfall > 0 or figures["params_kept"] == 0:
            return 1 + max(0.0, shortfall)
        return math.log10(figures["flops_kept"] * figures["params_kept"]) / 2

    def study(self, name: str, strengths: tuple[float, ...], trials: int) -> Study:
        """Return the study over the strengths: a bisection."""
        return Bisection(name, {"strength": strengths}, trials)


@dataclass(frozen=True)
class MostAccurateWithinSize:
    """The highest accuracy of a network within a size; if all are larger, the smallest.

    Attributes:
        flops_kept: Maximum fraction of the MACs.
        params_kept: Maximum fraction of the weights.
    """

    needs_dense: ClassVar[bool] = False
    flops_kept: float
    params_kept: float

    def value(self, figures: Mapping[str, float]) -> float:
        """Return the negative accuracy; if infeasible, the factor by which the network is too large."""
        excess = max(figures["flops_kept"] / self.flops_kept, figures["params_kept"] / self.params_kept)
        return excess if excess > 1 else -figures["accuracy"]

    def study(self, name: str, strengths: tuple[float, ...], trials: int) -> Study:
        """Return the study over the strengths: each of them."""
        return Study(name, {"strength": strengths}, trials)
