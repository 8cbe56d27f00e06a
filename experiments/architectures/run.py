"""Train the six architectures by all methods, and show the table.

    OMP_NUM_THREADS=1 python experiments/architectures/run.py [MINUTES] [ARCHITECTURE ...]

Every training is one line of results.jsonl; its network goes to runs/architectures, where latency.py reads it. A run
that is interrupted, or ends after MINUTES, continues with the first training that is missing.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from methods import METHODS, SCRATCH, from_scratch
from table import show
from tasks import TASKS
from torch import nn

import gossamer
from gossamer_lab.reporting.results import ResultsFile

NETWORKS = Path("runs/architectures")


@dataclass(frozen=True)
class Job:
    """One training."""

    architecture: str
    method: str
    seed: int

    @property
    def file(self) -> Path:
        """Where its network is stored."""
        return NETWORKS / f"{self.architecture}-{self.method}-{self.seed}.pt".replace(",", "").replace(" ", "-")


@dataclass(frozen=True)
class Outcome:
    """Sizes are relative to the dense network.

    Attributes:
        score: accuracy on the test images, or the part of their variance that an autoencoder explains.
        weights: weights of the deployed network.
        macs: MACs of the deployed network.
        nonzero: its weights that are not zero.
        units: output units of its layers.
        epochs: length of the training.
        seconds: time of the training.
    """

    score: float
    weights: float
    macs: float
    nonzero: float
    units: list[int]
    epochs: int
    seconds: float


FILE = ResultsFile(Path(__file__).with_name("results.jsonl"), Job, Outcome)


def jobs(chosen: list[str]) -> Iterator[Job]:
    """All trainings; the first seed of every architecture first."""
    for seed in range(max(task.seeds for task in TASKS.values())):
        for name, task in TASKS.items():
            if name in chosen and seed < task.seeds:
                yield from (Job(name, method, seed) for method in (*METHODS, *SCRATCH))


def trained(job: Job) -> tuple[nn.Module, int]:
    """The network of a job, and its epochs. Networks from scratch have the widths that unit Tl1 has found."""
    task = TASKS[job.architecture]
    if job.method in METHODS:
        return METHODS[job.method](task, job.seed), task.epochs
    found = Job(job.architecture, "unit Tl1", job.seed)
    if found.file.exists():
        small = torch.load(found.file, weights_only=False)
    else:
        small, _ = trained(found)
    return from_scratch(job.method, small, task, job.seed)


def outcome(job: Job) -> Outcome:
    """Train, store the network, and measure it."""
    task, started = TASKS[job.architecture], time.perf_counter()
    model, epochs = trained(job)
    seconds = time.perf_counter() - started
    NETWORKS.mkdir(parents=True, exist_ok=True)
    torch.save(model.eval(), job.file)
    left, full = (gossamer.measure(each, task.example) for each in (model, task.build(0)))
    return Outcome(
        score=task.score(model),
        weights=left.total.weights / full.total.weights,
        macs=left.total.macs / full.total.macs,
        nonzero=left.total.nonzeros / full.total.weights,
        units=[layer.units for layer in left.layers],
        epochs=epochs,
        seconds=round(seconds, 1),
    )


def main() -> None:
    torch.set_num_threads(1)
    arguments = sys.argv[1:]
    minutes = float(arguments.pop(0)) if arguments and arguments[0] not in TASKS else math.inf
    unknown = set(arguments) - set(TASKS)
    if unknown:
        sys.exit(f"Unknown architecture {', '.join(sorted(unknown))}. Available: {', '.join(TASKS)}.")
    FILE.complete(jobs(arguments or list(TASKS)), outcome, minutes)
    show()


if __name__ == "__main__":
    main()
