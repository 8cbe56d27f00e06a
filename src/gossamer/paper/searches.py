"""What is tuned, for which method and on which data set.

The ladders of strengths are the same for all data sets, and on each every method has the same number of trials at
most. l1, sparse group lasso and CGES have one ladder of 25 rungs; integrated Tl1 has two values of a, and for each half
of the trials on a ladder of 13.
"""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.paper.compared import CGES, GROUP, ITL, L1, SGL, TL1, Compared
from gossamer.paper.recipes import PLAIN, Recipe
from gossamer.paper.tuning import Search

__all__ = ["DATASETS", "PLAIN_DATASETS", "search_at", "searches"]

# The data sets of the paper's table, in its order, and those that the paper's plain recipe is shown on, too.
DATASETS = ("mnist", "fashion-mnist", "sdd", "pendigits", "cifar-10")
PLAIN_DATASETS = ("mnist", "pendigits")

# Trials of a method. Those on CIFAR-10 take long, and the plain recipe is a side show; where there are four, integrated
# Tl1 has one value of a.
_TRIALS = {"digits": 8, "mnist": 8, "fashion-mnist": 8, "sdd": 8, "pendigits": 8, "cifar-10": 4}
_PLAIN_TRIALS = 4
_LEAST_OF_A_LADDER = 4

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

# The smaller a, the harder a strength presses on small weights: one ladder that holds for all.
_ANY_A = _ladder(1e-6, 4, 33)


def searches(dataset: str, compared: Compared, recipe: Recipe) -> list[Search]:
    """The searches of a method on a data set, one for each shape."""
    trials = _PLAIN_TRIALS if recipe.name == PLAIN.name else _TRIALS[dataset]
    ladders = _LADDERS[compared][: trials // _LEAST_OF_A_LADDER]
    return [_search(dataset, compared, recipe, ladder, trials // len(ladders)) for ladder in ladders]


def search_at(a: float, recipe: Recipe) -> Search:
    """The search of integrated Tl1 on DIGITS at one value of a."""
    return _search("digits", ITL, recipe, _Ladder(_ANY_A, (("a", a),)), _TRIALS["digits"])


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
