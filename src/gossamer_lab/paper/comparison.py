"""The paper's table: the four methods on its data sets, by our recipe and by the plain algorithm."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from gossamer_lab.paper.experiments import Experiment, Request
from gossamer_lab.paper.methods import DENSE, TABLE
from gossamer_lab.paper.plan import Training
from gossamer_lab.paper.published import DATASETS
from gossamer_lab.paper.recipes import OURS, PLAIN, Recipe
from gossamer_lab.paper.runner import OUTCOMES
from gossamer_lab.paper.searches import searches
from gossamer_lab.paper.table import Row, read_rows, to_json
from gossamer_lab.paper.table_sections import terminal_tables, write_markdown

__all__ = ["PLAIN_EXPERIMENT", "TABLE_EXPERIMENT", "compared_trainings"]

# The plain recipe is a side experiment, on two data sets.
_PLAIN_DATASETS = ("mnist", "pendigits")


def compared_trainings(
    request: Request, recipe: Recipe = OURS, folder: str = "table", datasets: tuple[str, ...] = DATASETS
) -> list[Training]:
    """Return the trainings of the four methods on all seeds, and of the dense network on the first."""
    recipe = replace(recipe, quick=request.quick)
    trainings = []
    for dataset in request.select(datasets):
        file = f"{folder}/{dataset}.jsonl"
        tuned = {method: searches(dataset, method, recipe) for method in TABLE}
        trainings += [
            Training(file, method.key, dataset, method, recipe, seed, searches=tuned[method])
            for seed in request.seeds
            for method in TABLE
        ]
        trainings.append(Training(file, DENSE.key, dataset, DENSE, recipe, request.seeds[0]))
    return trainings


def _experiment(folder: str, recipe: Recipe, datasets: tuple[str, ...]) -> Experiment[list[Row]]:
    return Experiment(
        folder=folder,
        datasets=datasets,
        trainings=partial(compared_trainings, recipe=recipe, folder=folder, datasets=datasets),
        kind=lambda request: OUTCOMES,
        read=partial(read_rows, folder=folder, datasets=datasets),
        outputs={"table.md": write_markdown},
        tables=terminal_tables,
        json=to_json,
    )


TABLE_EXPERIMENT = _experiment("table", OURS, DATASETS)
PLAIN_EXPERIMENT = _experiment("plain", PLAIN, _PLAIN_DATASETS)
