"""ResNet-20 for the MACs of its dense training: once the network is small, the same MACs pay for more epochs.

    OMP_NUM_THREADS=1 python experiments/architectures/equal_cost.py [MINUTES]   # trains what is missing, equal_cost.md

The network has its final size after a part of the training, is shrunk, and is trained on for as many epochs as the MACs
of the rest of the dense training allow. The learning rate follows the MACs spent.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import run
import torch
from methods import ATTACHED, COST_EXPONENT, EQUAL_COST, from_scratch, macs, step_at
from pruner import Pruner
from tasks import TASKS, Task
from torch import nn
from training import train

import gossamer
from gossamer.files import write_atomically
from gossamer_lab.reporting.results import ResultsFile
from gossamer_lab.reporting.tables import Table, mean_std, percent

FOLDER = Path(__file__).parent
TASK = TASKS["resnet"]
SEEDS = range(3)
REACHED = 0.4
"""Of the MACs. The rest pays for 2.5 times as many epochs at 40 % of the MACs."""


@dataclass(frozen=True)
class Job:
    """One training."""

    method: str
    seed: int


@dataclass(frozen=True)
class Outcome:
    """Accuracy on the test images; MACs and weights relative to the dense network; MACs of the training to its MACs."""

    score: float
    macs: float
    weights: float
    cost: float
    epochs: float


FILE = ResultsFile(FOLDER / "equal_cost.jsonl", Job, Outcome)


def unit_tl1(task: Task, seed: int, a: float = 1.0) -> tuple[nn.Module, torch.optim.Optimizer]:
    """The small network, and its optimizer, whose momentum is cut along."""
    model = task.build(seed)
    optimizer, shared = task.optimizer(model), {"epochs": task.epochs, "seed": seed}
    start, end = step_at(ATTACHED, task), step_at(REACHED, task)
    train(model, optimizer, task, **shared, last=start)
    regularizer = gossamer.unit_tl1(model, a=a, example=task.example, cost_exponent=COST_EXPONENT)
    target = gossamer.Target(dense_flops=task.macs)
    gossamer.attach(optimizer, regularizer, target=target, steps=end - start)
    train(model, optimizer, task, **shared, first=start, last=end)
    gossamer.shrink_(model, task.example, optimizer=optimizer)
    return model, optimizer


def torch_pruning(task: Task, seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Its parameters are new, and so is the optimizer. Groups are ranked across layers, which is ahead in run.py."""
    model = task.build(seed)
    goal = task.macs * macs(model, task)
    pruner = Pruner(model, task.example, across_layers=True)
    shared = {"epochs": task.epochs, "seed": seed, "last": step_at(REACHED, task)}
    train(model, task.optimizer(model), task, **shared, after_backward=pruner.regularize)
    pruner.prune(lambda network: macs(network, task), goal)
    return model, task.optimizer(model)


METHODS = {
    "unit Tl1": unit_tl1,
    "unit Tl1, a = 0.2": partial(unit_tl1, a=0.2),
    "Torch-Pruning, across layers": torch_pruning,
}


def outcome(job: Job) -> Outcome:
    """Train in two parts; from scratch the widths that unit Tl1 has found after the first, in the MACs of both."""
    full, weights = macs(TASK.build(0), TASK), gossamer.measure(TASK.build(0), TASK.example).total.weights
    if job.method == EQUAL_COST:
        small, _ = unit_tl1(TASK, job.seed)
        model, epochs = from_scratch(EQUAL_COST, small, TASK, job.seed)
        first = 0.0
    else:
        model, optimizer = METHODS[job.method](TASK, job.seed)
        first = REACHED
        epochs = math.floor((1 - first) * TASK.epochs * full / macs(model, TASK))
        # Batches in another order than those of the first part.
        train(model, optimizer, TASK, epochs=epochs, seed=job.seed + len(SEEDS), done=first)
    left = gossamer.measure(model, TASK.example).total
    cost = first + epochs / TASK.epochs * left.macs / full
    return Outcome(TASK.score(model), left.macs / full, left.weights / weights, cost, first * TASK.epochs + epochs)


def jobs() -> Iterator[Job]:
    """All trainings, the first seed first."""
    for seed in SEEDS:
        yield from (Job(method, seed) for method in (*METHODS, EQUAL_COST))


def table() -> Table:
    """The mean over the seeds, below the dense networks of run.py."""
    done = [(job.method, each) for job, each in FILE.read().items()]
    full = [each for job, each in run.FILE.read().items() if (job.architecture, job.method) == ("resnet", "dense")]
    done += [("dense", Outcome(each.score, each.macs, each.weights, 1.0, each.epochs)) for each in full]
    rows = []
    for name in ("dense", *METHODS, EQUAL_COST):
        found = [each for method, each in done if method == name]
        if found:
            mean = {key: sum(getattr(each, key) for each in found) / len(found) for key in ("macs", "weights", "cost")}
            epochs = sum(each.epochs for each in found) / len(found)
            score = mean_std([100 * each.score for each in found])
            sizes = [percent(mean[key], 1) for key in ("weights", "macs", "cost")]
            rows.append([name, str(len(found)), f"{epochs:.1f}", score, *sizes])
    headers = ["method", "seeds", "epochs", "score (%)", "weights (%)", "MACs (%)", "MACs of the training (%)"]
    return Table(headers, rows, align="l")


def main() -> None:
    """Train, then write the table."""
    torch.set_num_threads(1)
    FILE.complete(jobs(), outcome, float(sys.argv[1]) if len(sys.argv) > 1 else math.inf)
    text = table().markdown()
    write_atomically(FOLDER / "equal_cost.md", text.encode())
    print(text)


if __name__ == "__main__":
    main()
