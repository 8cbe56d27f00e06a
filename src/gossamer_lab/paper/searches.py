"""What is tuned, for which method and on which data set.

On a data set every method has the same number of trials at most. The strengths lie on ladders of 25 rungs over two
decades, the same for all data sets. Integrated Tl1 has two values of a, and for each half of the trials on every second
rung. On CIFAR-10, whose trainings are long, all have fewer trials, on the rungs in the middle.
"""

from __future__ import annotations

from gossamer_lab.paper.compared import CGES, GROUP, ITL, L1, SGL, TL1, Compared
from gossamer_lab.paper.recipes import PLAIN, Recipe
from gossamer_lab.paper.rules import Smallest
from gossamer_lab.paper.tuning import Search, Shape

__all__ = ["PLAIN_DATASETS", "ladder", "search_at", "searches"]

# Those that the paper's plain recipe is shown on, too.
PLAIN_DATASETS = ("mnist", "pendigits")

# Trials of a method. The plain recipe is a side show, and on CIFAR-10 a training takes ten minutes: in both integrated
# Tl1 has one value of a.
_TRIALS = 8
_TRIALS_FEW = 4

# Accuracy that a penalty may cost on the validation images, as a fraction, and the part of the training images that
# these are.
_DROP = {"digits": 0.01, "mnist": 0.003, "fashion-mnist": 0.01, "sdd": 0.003, "pendigits": 0.003, "cifar-10": 0.01}
_VALIDATION = {"digits": 0.2, "mnist": 0.1, "fashion-mnist": 0.1, "sdd": 0.1, "pendigits": 0.2, "cifar-10": 0.1}


def ladder(lowest: float, decades: float, rungs: int) -> tuple[float, ...]:
    """Strengths from ``lowest`` over some decades, evenly on a scale of logarithms, in three digits."""
    return tuple(float(f"{lowest * 10 ** (decades * rung / (rungs - 1)):.3g}") for rung in range(rungs))


# The strengths of each method, and the shapes that these are tried for.
_LADDERS: dict[Compared, tuple[float, ...]] = {
    L1: ladder(5e-5, 2, 25),
    SGL: ladder(2e-5, 2, 25),
    CGES: ladder(1e-4, 2, 25),
    ITL: ladder(5e-5, 2, 25),
    GROUP: ladder(1e-5, 2, 25),
    TL1: ladder(5e-5, 2, 25),
}
_SHAPES: dict[Compared, tuple[Shape, ...]] = {
    ITL: ((("a", 0.1), ("s", 0.3)), (("a", 0.02), ("s", 0.3))),
    TL1: ((("a", 0.1),), (("a", 0.02),)),
}

# Fifteen rungs are what four trials halve to one.
_MIDDLE = slice(5, 20)

# The smaller a, the harder a strength presses on small weights: one ladder that holds for all.
_ANY_A = ladder(1e-6, 4, 33)


def searches(dataset: str, compared: Compared, recipe: Recipe) -> list[Search]:
    """The searches of a method on a data set, one for each shape."""
    rungs, shapes = _LADDERS[compared], _SHAPES.get(compared, ((),))
    if dataset == "cifar-10":
        return [_search(dataset, compared, recipe, rungs[_MIDDLE], shapes[0], _TRIALS_FEW)]
    if len(shapes) > 1:  # half the trials for each, so half the rungs
        rungs = rungs[::2]
    if recipe.name == PLAIN.name:
        return [_search(dataset, compared, recipe, rungs, shapes[0], _TRIALS_FEW)]
    return [_search(dataset, compared, recipe, rungs, shape, _TRIALS // len(shapes)) for shape in shapes]


def search_at(a: float, recipe: Recipe) -> Search:
    """The search of integrated Tl1 on DIGITS at one value of a."""
    return _search("digits", ITL, recipe, _ANY_A, (("a", a),), _TRIALS)


def _search(
    dataset: str, compared: Compared, recipe: Recipe, rungs: tuple[float, ...], shape: Shape, trials: int
) -> Search:
    return Search(
        dataset,
        compared,
        recipe,
        rungs,
        2 if recipe.quick else trials,
        Smallest(_DROP[dataset]),
        validation=_VALIDATION[dataset],
        shape=shape,
    )
