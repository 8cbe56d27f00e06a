"""The searches of each method on each data set.

Every method has the same maximum number of trials on a data set. Strengths lie on a logarithmic grid of 25 points over
two decades, the same for all data sets. Integrated Tl1 has two values of a, each with half of the trials on every
second point. On CIFAR-10, where trainings are long, every method has fewer trials, on the middle of its grid.
"""

from __future__ import annotations

from gossamer_lab.paper.criteria import SmallestWithinDrop
from gossamer_lab.paper.methods import CGES, GROUP, ITL, L1, SGL, TL1, Method
from gossamer_lab.paper.recipes import PLAIN, Recipe
from gossamer_lab.paper.tuning import Search, Shape

__all__ = ["log_grid", "search_at", "searches"]

# Trials per method. The plain recipe is a side experiment and a training on CIFAR-10 takes ten minutes: both have few
# trials, and integrated Tl1 has one value of a there.
_TRIALS = 8
_FEW_TRIALS = 4

# Accuracy that a penalty may cost on the validation images, and the fraction of the training images they are.
_DROP = {"digits": 0.01, "mnist": 0.003, "fashion-mnist": 0.01, "sdd": 0.003, "pendigits": 0.003, "cifar-10": 0.01}
_VALIDATION = {"digits": 0.2, "mnist": 0.1, "fashion-mnist": 0.1, "sdd": 0.1, "pendigits": 0.2, "cifar-10": 0.1}


def log_grid(lowest: float, decades: float, points: int) -> tuple[float, ...]:
    """Return logarithmically spaced strengths, rounded to three digits."""
    return tuple(float(f"{lowest * 10 ** (decades * point / (points - 1)):.3g}") for point in range(points))


_GRIDS: dict[Method, tuple[float, ...]] = {
    L1: log_grid(5e-5, 2, 25),
    SGL: log_grid(2e-5, 2, 25),
    CGES: log_grid(1e-4, 2, 25),
    ITL: log_grid(5e-5, 2, 25),
    GROUP: log_grid(1e-5, 2, 25),
    TL1: log_grid(5e-5, 2, 25),
}
_SHAPES: dict[Method, tuple[Shape, ...]] = {
    ITL: ((("a", 0.1), ("s", 0.3)), (("a", 0.02), ("s", 0.3))),
    TL1: ((("a", 0.1),), (("a", 0.02),)),
}

# Four trials bisect fifteen points to one.
_MIDDLE = slice(5, 20)

# The effective strength on small weights grows as a falls, so the study of a needs a wider grid.
_WIDE_GRID = log_grid(1e-6, 4, 33)


def searches(dataset: str, method: Method, recipe: Recipe) -> tuple[Search, ...]:
    """Return the searches of a method on a data set, one per shape."""
    grid, shapes = _GRIDS[method], _SHAPES.get(method, ((),))
    if dataset == "cifar-10":
        return (_search(dataset, method, recipe, grid[_MIDDLE], shapes[0], _FEW_TRIALS),)
    if len(shapes) > 1:  # half of the trials per shape, so half of the grid
        grid = grid[::2]
    if recipe.name == PLAIN.name:
        return (_search(dataset, method, recipe, grid, shapes[0], _FEW_TRIALS),)
    return tuple(_search(dataset, method, recipe, grid, shape, _TRIALS // len(shapes)) for shape in shapes)


def search_at(a: float, recipe: Recipe) -> Search:
    """Return the search of integrated Tl1 on DIGITS at one value of a."""
    return _search("digits", ITL, recipe, _WIDE_GRID, (("a", a),), _TRIALS)


def _search(
    dataset: str, method: Method, recipe: Recipe, strengths: tuple[float, ...], shape: Shape, trials: int
) -> Search:
    return Search(
        dataset,
        method,
        recipe,
        strengths,
        2 if recipe.quick else trials,
        SmallestWithinDrop(_DROP[dataset]),
        validation=_VALIDATION[dataset],
        shape=shape,
    )
