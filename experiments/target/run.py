"""Targets against a grid of strengths: is the size hit, at what accuracy, and how large is the last cut?

    OMP_NUM_THREADS=1 python experiments/target/run.py [MINUTES]     # trains what results.jsonl lacks, then the table

Every training is one line of results.jsonl. A run that is interrupted, or ends after MINUTES, continues with the first
training that is missing.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from statistics import mean, median

import torch

import gossamer
from gossamer.files import write_atomically
from gossamer.proximal import attach, warm_up
from gossamer_lab.reporting.results import ResultsFile
from gossamer_lab.reporting.tables import Table, mean_std
from gossamer_lab.training import Progress, TrainingConfig, accuracy, assemble, defaults, load_dataset, train_epoch
from gossamer_lab.training.loop import to_channels_last

FOLDER = Path(__file__).parent

EPOCHS = {"digits": 60, "pendigits": 30, "mnist": 4}
SEEDS = {"digits": range(5), "pendigits": range(5), "mnist": range(2)}
GRID_SEEDS = {"digits": range(5), "pendigits": range(5), "mnist": range(2)}
ARITHMETIC = {"digits": torch.float32, "pendigits": torch.float32, "mnist": torch.bfloat16}
# The shape of the penalty, the same for targets and grid.
SHAPES = {"digits": {"a": 1.0, "s": 0.1}, "pendigits": {"a": 0.1, "s": 0.3}, "mnist": {"a": 0.2, "s": 0.1}}
KINDS = ("params", "flops", "dense_flops")
SIZES = (0.01, 0.05, 0.2)
# Strengths of the grid: smallest, largest, how many; equal ratios.
GRID = {"digits": (1e-4, 1e-4 * 40 ** (11 / 7), 12), "pendigits": (3e-5, 2e-2, 7), "mnist": (1e-5, 4e-3, 7)}


@dataclass(frozen=True)
class Job:
    """One training: to a target, or at a strength; `kind` also determines the exponent of the cost."""

    dataset: str
    kind: str
    seed: int
    size: float | None = None
    strength: float | None = None
    regularizer: str = "integrated-tl1"


@dataclass(frozen=True)
class Outcome:
    """Sizes relative to the full network, accuracy on the test images."""

    accuracy: float
    params: float
    flops: float
    dense_flops: float
    strength: float
    before: float | None
    cut: float | None
    units: dict[str, int]
    seconds: float


FILE = ResultsFile(FOLDER / "results.jsonl", Job, Outcome)


def jobs() -> Iterator[Job]:
    """All trainings; those of the first seeds first, so that an unfinished run shows all targets beside a grid."""
    for dataset in EPOCHS:
        first, *others = SEEDS[dataset]
        yield from _targets(dataset, [first])
        for seed in GRID_SEEDS[dataset]:
            for strength in strengths(dataset):
                yield from (Job(dataset, kind, seed, strength=strength) for kind in KINDS)
        yield from _targets(dataset, others)


def strengths(dataset: str) -> list[float]:
    low, high, count = GRID[dataset]
    return [float(f"{low * (high / low) ** (step / (count - 1)):.3g}") for step in range(count)]


def _targets(dataset: str, seeds: Sequence[int]) -> Iterator[Job]:
    for seed in seeds:
        yield from (Job(dataset, kind, seed, size=size) for size in SIZES for kind in KINDS)


def train(job: Job) -> Outcome:
    settings = {**defaults(job.dataset, job.regularizer, job.kind), **SHAPES[job.dataset]}
    settings |= {"epochs": EPOCHS[job.dataset], "strength": 0.0}
    # Of several warm-ups the longest, or strong penalties zero whole layers at the start.
    settings["warm_up_fraction"] = max(settings["warm_up_fraction"], 0.5)
    settings.pop("compact_every", None)  # the networks are small, the removal is slower than what it saves
    chosen = {f"target_{job.kind}": job.size} if job.size is not None else {"strength": job.strength}
    config = TrainingConfig(dataset=job.dataset, regularizer=job.regularizer, seed=job.seed, **{**settings, **chosen})
    dataset = load_dataset(config)
    model, regularizer = assemble(config, dataset)
    assert regularizer is not None
    full = gossamer.measure(model, dataset.example)
    to_channels_last(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=config.learning_rate, momentum=config.momentum)
    per_epoch = math.ceil(len(dataset.train_images) / config.batch_size)
    steps = config.sparsify_epochs * per_epoch
    started = time.perf_counter()
    if job.size is not None:
        handle = attach(optimizer, regularizer, target=gossamer.Target(**{job.kind: job.size}), steps=steps)
    else:
        handle = attach(optimizer, regularizer, schedule=warm_up(config.warm_up_epochs * per_epoch), steps=steps)
    progress = Progress()
    while progress.phase != "done":
        if progress.phase == "hold" and not handle.held:
            gossamer.zero_dead_biases(model, dataset.example, optimizer=optimizer)
            handle.hold()
        loss, _ = train_epoch(model, dataset, optimizer, config, progress, ARITHMETIC[job.dataset])
        progress = progress.after(loss, config)
    seconds = time.perf_counter() - started
    reached = handle.reached
    small = gossamer.measure(gossamer.shrink(model, dataset.example, form="module"), dataset.example)
    left = small.against(full)
    return Outcome(
        accuracy=accuracy(model, dataset.test_images, dataset.test_labels),
        params=left.params_kept,
        flops=left.flops_kept,
        dense_flops=small.total.macs / full.total.macs,
        strength=config.strength if reached is None else reached.strength,
        before=None if reached is None else reached.before / reached.full,
        cut=None if reached is None else reached.cut,
        units={layer.name: layer.units for layer in small.layers},
        seconds=seconds,
    )


def at_size(outcomes: list[Outcome], kind: str, size: float) -> float | None:
    """Accuracy of the grid at a size: linear in log size between the two neighbours; None outside of the grid.

    Networks of which nothing is left are no neighbours.
    """
    points = sorted((getattr(each, kind), each.accuracy) for each in outcomes if each.params > 0)
    for (small, low), (large, high) in pairwise(points):
        if small <= size <= large:
            part = math.log(size / small) / math.log(large / small) if large > small else 1.0
            return low + part * (high - low)
    return None


def grid_accuracies(done: dict[Job, Outcome], dataset: str, kind: str, size: float) -> list[float]:
    """Accuracy of the grid at a size, for each seed whose grid reaches it."""
    found = []
    for seed in GRID_SEEDS[dataset]:
        grid = [
            o
            for j, o in done.items()
            if j.strength in strengths(dataset) and (j.dataset, j.kind, j.seed) == (dataset, kind, seed)
        ]
        found.append(at_size(grid, kind, size))
    return [value for value in found if value is not None]


def table(done: dict[Job, Outcome]) -> Table:
    """Size, accuracy, grid and last cut of every target."""
    rows = []
    for dataset, kind, size in product(EPOCHS, KINDS, SIZES):
        hits = [o for j, o in done.items() if (j.dataset, j.kind, j.size) == (dataset, kind, size)]
        if not hits:
            continue
        grid = grid_accuracies(done, dataset, kind, size)
        accuracies = [o.accuracy for o in hits]
        rows.append(
            [
                dataset,
                kind,
                f"{size:.0%}",
                str(len(hits)),
                " to ".join(f"{100 * f(getattr(o, kind) for o in hits):.3f}" for f in (min, max)) + " %",
                f"{mean_std([100 * value for value in accuracies])} %",
                f"{mean_std([100 * value for value in grid])} %" if grid else "-",
                f"{100 * (mean(accuracies) - mean(grid)):+.2f}" if grid else "-",
                f"{100 * median(abs(o.cut or 0) for o in hits):.1f} %",
            ]
        )
    columns = ("data", "target", "size", "seeds", "size hit", "accuracy", "grid", "difference", "last cut")
    return Table(columns, rows)


def main() -> None:
    torch.set_num_threads(1)
    FILE.complete(jobs(), train, float(sys.argv[1]) if len(sys.argv) > 1 else math.inf)
    done = FILE.read()
    found = table(done)
    cuts = [abs(o.cut) for o in done.values() if o.cut is not None]
    differences = [float(row[7]) for row in found.rows if row[7] != "-"]
    text = (
        f"{found.markdown()}\nMedian of the last cut over all {len(cuts)} runs: {100 * median(cuts):.1f} %. "
        f"Mean difference to the grid over {len(differences)} settings: {mean(differences):+.2f} points.\n"
    )
    write_atomically(FOLDER / "table.md", text.encode())
    print(text)


if __name__ == "__main__":
    main()
