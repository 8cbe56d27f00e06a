"""The shape of the penalties at equal size: a and s of integrated Tl1, a and the balance of unit Tl1.

    OMP_NUM_THREADS=1 python experiments/shapes/run.py [MINUTES] [DATASET ...]  # train the missing, then the tables

Validation images, a fifth of the training images; the test images are not used. Every training is one line of
results.jsonl. A run that is interrupted, or ends after MINUTES, continues with the first training that is missing.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import torch

import gossamer
from gossamer.files import write_atomically
from gossamer_lab.data import hold_out
from gossamer_lab.paper.published import DATASET_LABELS
from gossamer_lab.reporting.results import ResultsFile
from gossamer_lab.reporting.tables import Table, mean_std
from gossamer_lab.training import TrainingConfig, defaults, load_dataset, regularizer_spec
from gossamer_lab.training.path import TradeoffPoint, train_to_target

FOLDER = Path(__file__).parent
SEEDS = range(1)
EPOCHS = {"digits": 60, "pendigits": 30, "sdd": 8, "mnist": 4, "fashion-mnist": 4, "cifar-10": 2}
BFLOAT16 = ("mnist", "fashion-mnist", "cifar-10")
SIZES = {
    "params": {"digits": (0.01, 0.05), "pendigits": (0.01, 0.05), "sdd": (0.01, 0.05), "mnist": (0.01,),
               "fashion-mnist": (0.05,), "cifar-10": (0.1,)},
    "dense_flops": {"digits": (0.05,), "pendigits": (0.03,), "sdd": (0.05,), "mnist": (0.05,),
                    "fashion-mnist": (0.15,), "cifar-10": (0.2,)},
}  # fmt: skip
# One parameter at a time: a at the default of the other, then the other at the default of a.
INTEGRATED = [*((a, 0.1) for a in (0.05, 0.2, 1.0, 5.0)), *((0.2, s) for s in (0.0, 0.3))]
UNIT = [*((a, 0.02) for a in (0.2, 1.0, 5.0)), *((1.0, balance) for balance in (0.0, 0.1, 0.3, 0.6))]


@dataclass(frozen=True)
class Job:
    """One training: `second` is s of integrated Tl1 or the balance of unit Tl1."""

    dataset: str
    kind: str
    size: float
    regularizer: str
    a: float
    second: float
    seed: int


FILE = ResultsFile(FOLDER / "results.jsonl", Job, TradeoffPoint)


def shapes(kind: str) -> list[tuple[str, float, float]]:
    """The regularizers of a kind of target: l1, which has no shape, and the grid."""
    name, grid = ("integrated-tl1", INTEGRATED) if kind == "params" else ("unit-tl1", UNIT)
    return [("l1", 0.0, 0.0), *((name, *values) for values in grid)]


def jobs(datasets: list[str]) -> Iterator[Job]:
    """All trainings, the first seed first."""
    for seed, dataset in product(SEEDS, datasets):
        for kind in SIZES:
            for size, shape in product(SIZES[kind][dataset], shapes(kind)):
                yield Job(dataset, kind, size, *shape, seed)


def train(job: Job) -> TradeoffPoint:
    """Train to the target of a job; the accuracy is that on the validation images."""
    chosen: dict[str, Any] = {**defaults(job.dataset, job.regularizer, job.kind), "epochs": EPOCHS[job.dataset]}
    chosen |= dict(zip(regularizer_spec(job.regularizer).parameters, (job.a, job.second), strict=False))
    chosen.pop("compact_every", None)
    chosen[f"target_{job.kind}"] = job.size
    config = TrainingConfig(dataset=job.dataset, regularizer=job.regularizer, seed=job.seed, **chosen)
    dataset = hold_out(load_dataset(config), fraction=0.2, seed=job.seed)
    arithmetic = torch.bfloat16 if job.dataset in BFLOAT16 else torch.float32
    return train_to_target(config, gossamer.Target(**{job.kind: job.size}), dataset, arithmetic)[0]


def table(kind: str) -> Table:
    """Accuracy for each shape: by data set and size, and the mean of the differences to l1."""
    done = FILE.read()
    settings = [(dataset, size) for dataset in EPOCHS for size in SIZES[kind][dataset]]
    found = {
        (setting, shape): [o.accuracy for j, o in done.items() if _matches(j, kind, setting, shape)]
        for setting, shape in product(settings, shapes(kind))
    }
    shown = [setting for setting in settings if all(found[setting, shape] for shape in shapes(kind))]
    l1 = shapes(kind)[0]
    rows = []
    for shape in shapes(kind):
        cells = [mean_std([100 * value for value in found[setting, shape]]) for setting in shown]
        gains = [100 * (mean(found[setting, shape]) - mean(found[setting, l1])) for setting in shown]
        name, a, second = shape
        label = [name, "", ""] if name == "l1" else [name, f"{a:g}", f"{second:g}"]
        rows.append([*label, *cells, f"{mean(gains):+.2f}" if gains else "-"])
    second = "s" if kind == "params" else "balance"
    headings = [f"{DATASET_LABELS.get(dataset, 'DIGITS')}, {size:.0%}" for dataset, size in shown]
    return Table(["regularizer", "a", second, *headings, "mean gain over l1"], rows, f"Target {kind}")


def _matches(job: Job, kind: str, setting: tuple[str, float], shape: tuple[str, float, float]) -> bool:
    return (job.kind, job.dataset, job.size, job.regularizer, job.a, job.second) == (kind, *setting, *shape)


def main() -> None:
    """Train, then write the tables."""
    torch.set_num_threads(1)
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else math.inf
    FILE.complete(jobs(sys.argv[2:] or list(EPOCHS)), train, minutes)
    text = "\n".join(table(kind).markdown(titled=True) for kind in SIZES)
    write_atomically(FOLDER / "table.md", text.encode())
    print(text)


if __name__ == "__main__":
    main()
