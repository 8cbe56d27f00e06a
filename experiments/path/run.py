"""A path of targets against training every size from scratch: accuracy and cost, means over the seeds.

    OMP_NUM_THREADS=1 python experiments/path/run.py [MINUTES] [DATASET ...]  # train the missing, then table, figures

Every curve is one line of results.jsonl. A run that is interrupted, or ends after MINUTES, continues with the first
curve that is missing.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from gossamer.files import write_atomically
from gossamer_lab.paper.published import DATASET_LABELS
from gossamer_lab.reporting.path_figure import path_figure
from gossamer_lab.reporting.results import ResultsFile
from gossamer_lab.reporting.tables import Table, mean_std
from gossamer_lab.training import TrainingConfig, defaults, load_dataset
from gossamer_lab.training.path import PathSettings, TradeoffPoint, from_scratch, warm_started

FOLDER = Path(__file__).parent
REGULARIZER = "integrated-tl1"
SIZES = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
EPOCHS = {"pendigits": 150, "mnist": 14}
SEEDS = {"pendigits": range(3), "mnist": range(2)}
ARITHMETIC = {"pendigits": torch.float32, "mnist": torch.bfloat16}
WAYS = {"path": warm_started, "from scratch": from_scratch}


@dataclass(frozen=True)
class Job:
    """One curve."""

    dataset: str
    way: str
    seed: int


@dataclass(frozen=True)
class Curve:
    """The points of a curve."""

    points: list[dict[str, Any]]

    def read(self) -> list[TradeoffPoint]:
        """Return the points, without the dense network that a path starts from."""
        return [TradeoffPoint(**point) for point in self.points if point["size"] < 1]

    @property
    def epochs(self) -> int:
        """Epochs of all trainings, that of the dense network included."""
        return sum(point["epochs"] for point in self.points)

    @property
    def seconds(self) -> float:
        """Their time."""
        return sum(point["seconds"] for point in self.points)


FILE = ResultsFile(FOLDER / "results.jsonl", Job, Curve)


def jobs(datasets: list[str]) -> Iterator[Job]:
    """All curves, the first seed first."""
    for dataset in datasets:
        yield from (Job(dataset, way, seed) for seed, way in product(SEEDS[dataset], WAYS))


def train(job: Job) -> Curve:
    """Train a curve."""
    chosen: dict[str, Any] = {**defaults(job.dataset, REGULARIZER, "params"), "epochs": EPOCHS[job.dataset]}
    chosen.pop("compact_every", None)
    chosen["target_params"] = SIZES[0]
    config = TrainingConfig(dataset=job.dataset, regularizer=REGULARIZER, seed=job.seed, **chosen)
    dataset = load_dataset(config)
    settings = PathSettings(config, "params", SIZES, epochs_each=None).checked(dataset)
    return Curve([asdict(point) for point, _ in WAYS[job.way](settings, dataset, ARITHMETIC[job.dataset])])


def table(done: dict[Job, Curve]) -> Table:
    """Accuracy by size and way, and what each way costs."""
    rows = []
    for dataset, way in product(EPOCHS, WAYS):
        curves = [curve for job, curve in done.items() if (job.dataset, job.way) == (dataset, way)]
        if curves:
            by_size = zip(*([100 * point.accuracy for point in curve.read()] for curve in curves), strict=True)
            cells = [mean_std(accuracies) for accuracies in by_size]
            means = [100 * fmean(point.accuracy for point in curve.read()) for curve in curves]
            costs = [f"{fmean(getattr(curve, cost) for curve in curves):.0f}" for cost in ("epochs", "seconds")]
            rows.append([DATASET_LABELS[dataset], way, *cells, mean_std(means), *costs, str(len(curves))])
    columns = ["data", "", *(f"{size:.0%}" for size in SIZES), "mean", "epochs", "seconds", "seeds"]
    return Table(columns, rows, align="ll")


def figure(dataset: str, done: dict[Job, Curve]) -> None:
    """Draw the means over the seeds."""
    curves = {}
    for way in WAYS:
        found = [curve for job, curve in done.items() if (job.dataset, job.way) == (dataset, way)]
        points = zip(*([TradeoffPoint(**point) for point in curve.points] for curve in found), strict=True)
        names = [field.name for field in fields(TradeoffPoint)]
        curves[way] = [
            TradeoffPoint(**{name: fmean(getattr(point, name) for point in seeds) for name in names})
            for seeds in points
        ]
    seeds = len(SEEDS[dataset])
    path_figure(f"{DATASET_LABELS[dataset]}, mean of {seeds} seeds", curves, FOLDER / f"{dataset}.png")


def main() -> None:
    """Train, then write the table and the figures of the data sets that are complete."""
    torch.set_num_threads(1)
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else math.inf
    FILE.complete(jobs(sys.argv[2:] or list(EPOCHS)), train, minutes)
    done = FILE.read()
    text = table(done).markdown()
    write_atomically(FOLDER / "table.md", text.encode())
    print(text)
    for dataset in EPOCHS:
        if all(job in done for job in jobs([dataset])):
            figure(dataset, done)


if __name__ == "__main__":
    main()
