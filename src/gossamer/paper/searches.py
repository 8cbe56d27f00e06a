"""What is tuned, for which method and on which data set.

On a data set every method has the same number of trials at most. The ladders of strengths are the same for all data
sets but CIFAR-10, whose trainings are long: l1, sparse group lasso and CGES have one of 25 rungs; integrated Tl1 has
two values of a, and for each half of the trials on a ladder of 13.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gossamer.paper.compared import CGES, GROUP, ITL, L1, SGL, TL1, Compared
from gossamer.paper.recipes import PLAIN, Recipe
from gossamer.paper.tuning import Search

__all__ = ["DATASETS", "PLAIN_DATASETS", "search_at", "searches"]

# The data sets of the paper's table, in its order, and those that the paper's plain recipe is shown on, too.
DATASETS = ("mnist", "fashion-mnist", "sdd", "pendigits", "cifar-10")
PLAIN_DATASETS = ("mnist", "pendigits")

# Trials of a method. The plain recipe is a side show, and on CIFAR-10 a training takes ten minutes: there integrated
# Tl1 has one value of a, and all have the middle half of their ladders in fewer rungs.
_TRIALS = 8
_TRIALS_PLAIN = 4
_TRIALS_CIFAR = 3

# Accuracy that a penalty may cost on the validation images, as a fraction, and the part of the training images that
# these are.
_DROP = {"digits": 0.01, "mnist": 0.003, "fashion-mnist": 0.01, "sdd": 0.003, "pendigits": 0.003, "cifar-10": 0.01}
_VALIDATION = {"digits": 0.2, "mnist": 0.1, "fashion-mnist": 0.1, "sdd": 0.1, "pendigits": 0.2, "cifar-10": 0.1}


def _ladder(lowest: float, decades: int, rungs: int) -> tuple[float, ...]:
    """Strengths from ``lowest`` over some decades, evenly on a scale of logarithms, in three digits."""
    return tuple(float(f"{lowest * 10 ** (decades * rung / (rungs - 1)):.3g}") for rung in range(rungs))


@dataclass(frozen=True)
class _Ladder:
    """Strengths, for one shape of a penalty."""

    strengths: tuple[float, ...]
    shape: tuple[tuple[str, float], ...] = ()


_LADDERS: dict[Compared, tuple[_Ladder, ...]] = {
    L1: (_Ladder(_ladder(5e-5, 2, 25)),),
    SGL: (_Ladder(_ladder(2e-5, 2, 25)),),
    CGES: (_Ladder(_ladder(1e-4, 2, 25)),),
    ITL: (
        _Ladder(_ladder(5e-5, 2, 13), (("a", 0.1), ("s", 0.3))),
        _Ladder(_ladder(5e-5, 2, 13), (("a", 0.02), ("s", 0.3))),
    ),
    GROUP: (_Ladder(_ladder(1e-5, 2, 25)),),
    TL1: (_Ladder(_ladder(5e-5, 2, 25)),),
}

_LADDERS_CIFAR: dict[Compared, tuple[_Ladder, ...]] = {
    compared: (_Ladder(_ladder(ladder.strengths[0] * math.sqrt(10), 1, 7), ladder.shape),)
    for compared, (ladder, *_) in _LADDERS.items()
}

# The smaller a, the harder a strength presses on small weights: one ladder that holds for all.
_ANY_A = _ladder(1e-6, 4, 33)


def searches(dataset: str, compared: Compared, recipe: Recipe) -> list[Search]:
    """The searches of a method on a data set, one for each shape."""
    if dataset == "cifar-10":
        ladders, trials = _LADDERS_CIFAR[compared], _TRIALS_CIFAR
    elif recipe.name == PLAIN.name:
        ladders, trials = _LADDERS[compared][:1], _TRIALS_PLAIN
    else:
        ladders, trials = _LADDERS[compared], _TRIALS
    return [_search(dataset, compared, recipe, ladder, trials // len(ladders)) for ladder in ladders]


def search_at(a: float, recipe: Recipe) -> Search:
    """The search of integrated Tl1 on DIGITS at one value of a."""
    return _search("digits", ITL, recipe, _Ladder(_ANY_A, (("a", a),)), _TRIALS)


def _search(dataset: str, compared: Compared, recipe: Recipe, ladder: _Ladder, trials: int) -> Search:
    return Search(
        dataset,
        compared,
        recipe,
        ladder.strengths,
        trials=2 if recipe.quick else trials,
        drop=_DROP[dataset],
        validation=_VALIDATION[dataset],
        shape=ladder.shape,
    )
