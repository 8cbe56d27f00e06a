"""The shapes of the penalties on these architectures: a and s of integrated Tl1, a and the balance of unit Tl1.

    OMP_NUM_THREADS=1 python experiments/architectures/shapes.py [MINUTES]   # trains what is missing, then shapes.md

A fifth of the training images is held out and scored; the test images are not used. Integrated Tl1 is trained to a part
of the weights, unit Tl1 to the MACs after `shrink` that the other experiments here ask for.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import mean

import torch
from methods import regularized, to_dense_macs
from tasks import TASKS, Task

import gossamer
from gossamer.files import write_atomically
from gossamer_lab.reporting.results import ResultsFile
from gossamer_lab.reporting.tables import Table, mean_std

FOLDER = Path(__file__).parent
SEEDS = range(2)
SIZES = {"perceptron": 0.02, "autoencoder": 0.05, "recurrent": 0.1, "mobile": 0.2, "transformer": 0.2}
"""Of the weights. Without ResNet-20, whose trainings take ten minutes each."""

# One parameter at a time: a at the default of the other, then the other at the default of a.
GRIDS = {
    "l1": [(0.0, 0.0)],
    "integrated Tl1": [*((a, 0.1) for a in (0.05, 0.2, 1.0, 5.0)), *((0.2, s) for s in (0.0, 0.3))],
    "unit Tl1": [*((a, 0.02) for a in (0.2, 1.0, 5.0)), *((1.0, balance) for balance in (0.0, 0.1))],
}


@dataclass(frozen=True)
class Job:
    """One training: `second` is s of integrated Tl1 or the balance of unit Tl1."""

    architecture: str
    regularizer: str
    a: float
    second: float
    seed: int


@dataclass(frozen=True)
class Outcome:
    """The score on the images that were held out, and what is left."""

    score: float
    nonzero: float
    macs: float


FILE = ResultsFile(FOLDER / "shapes.jsonl", Job, Outcome)


def jobs() -> Iterator[Job]:
    """All trainings, the first seed first."""
    for seed, architecture in product(SEEDS, SIZES):
        for regularizer, grid in GRIDS.items():
            yield from (Job(architecture, regularizer, a, second, seed) for a, second in grid)


def train(job: Job) -> Outcome:
    """Train to the target of a job."""
    task: Task = replace(TASKS[job.architecture], held_out=0.2)
    if job.regularizer == "unit Tl1":
        recipe = partial(gossamer.unit_tl1, a=job.a, balance=job.second)
        model = to_dense_macs(task, job.seed, recipe)
    else:
        shaped = partial(gossamer.integrated_tl1, a=job.a, s=job.second)
        recipe = gossamer.l1 if job.regularizer == "l1" else shaped
        model = regularized(task, job.seed, recipe, gossamer.Target(params=SIZES[job.architecture]))
    left, full = (gossamer.measure(each, task.example).total for each in (model, task.build(0)))
    return Outcome(task.score(model), left.nonzeros / full.weights, left.macs / full.macs)


def table() -> Table:
    """The score for each shape, and the mean of the differences to the default shape."""
    done = FILE.read()
    rows = []
    for regularizer, grid in GRIDS.items():
        found = {
            (shape, name): [o.score for j, o in done.items() if (j.regularizer, j.a, j.second) == (regularizer, *shape)
                            and j.architecture == name]
            for shape, name in product(grid, SIZES)
        }  # fmt: skip
        default = next((shape for shape in ((0.2, 0.1), (1.0, 0.02)) if shape in grid), grid[0])
        for shape in grid:
            scores = ([100 * score for score in found[shape, name]] for name in SIZES)
            cells = [mean_std(own) if own else "" for own in scores]
            whole = [name for name in SIZES if found[shape, name] and found[default, name]]
            gains = [100 * (mean(found[shape, name]) - mean(found[default, name])) for name in whole]
            label = ["", ""] if regularizer == "l1" else [f"{value:g}" for value in shape]
            rows.append([regularizer, *label, *cells, f"{mean(gains):+.2f}" if regularizer != "l1" and gains else ""])
    return Table(["regularizer", "a", "s or balance", *SIZES, "mean difference to the default"], rows, align="l")


def main() -> None:
    """Train, then write the table."""
    torch.set_num_threads(1)
    FILE.complete(jobs(), train, float(sys.argv[1]) if len(sys.argv) > 1 else math.inf)
    text = table().markdown()
    write_atomically(FOLDER / "shapes.md", text.encode())
    print(text)


if __name__ == "__main__":
    main()
