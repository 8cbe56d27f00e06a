"""What is tuned, for which method and on which data set.

Every method of the table has the same number of trials on a data set. l1 and sparse group lasso have nothing to tune
but the strength, so all of theirs go into a finer grid of it; integrated Tl1 shares its own between strength and shape.
"""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.paper.compared import CGES, GROUP, ITL, L1, L2, SGL, TL1, Compared
from gossamer.paper.recipes import PLAIN, Recipe
from gossamer.paper.tuning import Search

__all__ = ["DATASETS", "PLAIN_DATASETS", "search", "search_at"]

# The data sets of the paper's table, in its order, and those that the paper's plain recipe is shown on, too.
DATASETS = ("mnist", "fashion-mnist", "sdd", "pendigits", "cifar-10")
PLAIN_DATASETS = ("mnist", "pendigits")

_Grid = dict[str, tuple[float, ...]]


@dataclass(frozen=True)
class _Plan:
    """The searches on one data set.

    Attributes:
        drop: Accuracy that a penalty may cost on the validation images, as a fraction.
        validation: Part of the training images that these are.
        grids: What is tried for each method.
    """

    drop: float
    validation: float
    grids: dict[Compared, _Grid]


_PLANS: dict[str, _Plan] = {
    "mnist": _Plan(
        0.004,
        0.1,
        {
            L1: {"strength": (1.5e-4, 3e-4, 5e-4, 8e-4)},
            SGL: {"strength": (3e-5, 6e-5, 1e-4, 2e-4)},
            CGES: {"strength": (1e-4, 3e-4, 1e-3, 3e-3)},
            ITL: {"strength": (1e-4, 2e-4), "a": (0.01, 0.03), "s": (0.3,)},
            L2: {"strength": (1e-5, 1e-4, 1e-3)},
        },
    ),
    "fashion-mnist": _Plan(
        0.012,
        0.1,
        {
            L1: {"strength": (1e-4, 2e-4, 3e-4, 5e-4)},
            SGL: {"strength": (3e-5, 6e-5, 1e-4, 1.6e-4)},
            CGES: {"strength": (1e-4, 3e-4, 8e-4, 2e-3)},
            ITL: {"strength": (1e-4, 2e-4), "a": (0.03, 0.1), "s": (0.3,)},
        },
    ),
    "sdd": _Plan(
        0.003,
        0.1,
        {
            L1: {"strength": (1e-4, 2e-4, 3e-4, 4e-4, 6e-4, 8e-4, 1.2e-3, 2e-3)},
            SGL: {"strength": (4e-5, 6e-5, 1e-4, 1.5e-4, 2e-4, 3e-4, 5e-4, 8e-4)},
            CGES: {"strength": (2e-4, 4e-4, 7e-4, 1e-3, 2e-3, 3e-3, 5e-3, 1e-2)},
            ITL: {"strength": (5e-4, 8e-4, 1.2e-3, 2e-3), "a": (0.1, 0.3), "s": (0.3,)},
        },
    ),
    "pendigits": _Plan(
        0.005,
        0.2,
        {
            L1: {"strength": (5e-4, 8e-4, 1.2e-3, 1.6e-3, 2e-3, 2.5e-3, 3e-3, 4e-3)},
            SGL: {"strength": (2e-4, 3e-4, 4e-4, 6e-4, 8e-4, 1e-3, 1.4e-3, 2e-3)},
            CGES: {"strength": (5e-4, 1e-3, 2e-3, 4e-3, 7e-3, 1e-2, 2e-2, 4e-2)},
            ITL: {"strength": (5e-4, 8e-4, 1.2e-3, 2e-3), "a": (0.1, 0.3), "s": (0.3,)},
            L2: {"strength": (1e-5, 1e-4, 1e-3)},
        },
    ),
    "cifar-10": _Plan(
        0.015,
        0.1,
        {
            L1: {"strength": (1e-4, 2e-4, 4e-4, 8e-4)},
            SGL: {"strength": (2e-5, 4e-5, 8e-5, 1.6e-4)},
            CGES: {"strength": (1e-4, 3e-4, 1e-3, 3e-3)},
            ITL: {"strength": (1.5e-4, 3e-4), "a": (0.1, 0.3), "s": (0.5,)},
        },
    ),
    "digits": _Plan(
        0.01,
        0.2,
        {
            GROUP: {"strength": (3e-5, 1e-4, 2e-4, 3e-4, 5e-4, 1e-3)},
            TL1: {"strength": (2e-4, 4e-4, 7e-4, 1e-3, 1.5e-3, 2e-3)},
            ITL: {"strength": (2e-4, 4e-4, 7e-4, 1e-3, 1.5e-3, 2e-3)},
        },
    ),
}

# In the plain recipe the paper's range of strengths, 1e-6 to 1e-4, and what lies above it.
_PLAIN_GRIDS: dict[Compared, _Grid] = {
    L1: {"strength": (1e-5, 3e-5, 1e-4, 3e-4)},
    SGL: {"strength": (3e-6, 1e-5, 3e-5, 1e-4)},
    CGES: {"strength": (3e-5, 1e-4, 3e-4, 1e-3)},
    ITL: {"strength": (1e-5, 1e-4), "a": (0.01, 0.1)},
}
_PLAIN_PLANS = {
    dataset: _Plan(_PLANS[dataset].drop, _PLANS[dataset].validation, _PLAIN_GRIDS) for dataset in PLAIN_DATASETS
}

# The smaller a, the harder a strength presses on small weights.
_STRENGTHS_AT: dict[float, tuple[float, ...]] = {
    1e-3: (1e-6, 3e-6, 1e-5, 3e-5, 1e-4),
    1e-2: (1e-5, 3e-5, 1e-4, 2e-4, 4e-4),
    1e-1: (5e-5, 1e-4, 2e-4, 4e-4, 8e-4),
    1.0: (2e-4, 4e-4, 8e-4, 1.5e-3, 3e-3),
    10.0: (2e-4, 5e-4, 1e-3, 2e-3, 4e-3),
    100.0: (2e-4, 5e-4, 1e-3, 2e-3, 4e-3),
}


def search(dataset: str, compared: Compared, recipe: Recipe) -> Search:
    """The search of a method on a data set."""
    plan = (_PLAIN_PLANS if recipe.name == PLAIN.name else _PLANS)[dataset]
    return _search(dataset, compared, recipe, plan, plan.grids[compared], {})


def search_at(a: float, recipe: Recipe) -> Search:
    """The search of integrated Tl1 on DIGITS where only the strength is tuned."""
    return _search("digits", ITL, recipe, _PLANS["digits"], {"strength": _STRENGTHS_AT[a]}, {"a": a})


def _search(
    dataset: str, compared: Compared, recipe: Recipe, plan: _Plan, grid: _Grid, fixed: dict[str, float]
) -> Search:
    return Search(
        dataset,
        compared,
        recipe,
        tuple(grid.items()),
        drop=plan.drop,
        validation=plan.validation,
        fixed=tuple(fixed.items()),
        trials=2 if recipe.quick else None,
    )
