"""The paper's table at equal size: l1, SGL, CGES and integrated Tl1 by targets, so that only accuracies differ.

    OMP_NUM_THREADS=1 python experiments/equal_size/run.py [MINUTES]   # trains what results.jsonl lacks, then the table

The sizes are those that integrated Tl1 has in experiments/table and, for three data sets, the published ones. Every
training is one line of results.jsonl. A run that is interrupted, or ends after MINUTES, continues with the first
training that is missing.
"""

from __future__ import annotations

import json
import math
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch

from gossamer.files import write_atomically
from gossamer_lab.paper.methods import ITL, METHODS, TABLE
from gossamer_lab.paper.outcomes import read_outcomes
from gossamer_lab.paper.published import DATASET_LABELS, PUBLISHED
from gossamer_lab.reporting.tables import Table, percent
from gossamer_lab.training import TrainingConfig, defaults, load_dataset
from gossamer_lab.training.path import PathSettings, TradeoffPoint, from_scratch

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results.jsonl"
SEEDS = range(3)
# Fewer epochs than in experiments/table, the same for all methods: a night on two cores for everything.
EPOCHS = {"pendigits": 40, "sdd": 10, "mnist": 6, "fashion-mnist": 6, "cifar-10": 8}
WITH_PUBLISHED = ("pendigits", "sdd", "mnist")
FIELDS = {"params": "params_kept", "flops": "flops_kept"}


@dataclass(frozen=True)
class Job:
    """One training."""

    dataset: str
    method: str
    kind: str
    size: float
    seed: int


def sizes(dataset: str, kind: str) -> list[float]:
    outcomes = read_outcomes(FOLDER.parent / "table" / f"{dataset}.jsonl")
    ours = mean(getattr(each.result, FIELDS[kind]) for each in outcomes if each.job.key == ITL.key)
    found = [ours]
    if dataset in WITH_PUBLISHED:
        found.append(getattr(PUBLISHED[dataset, ITL.key], FIELDS[kind]))
    return [float(f"{size:.3g}") for size in found]


def jobs() -> Iterator[Job]:
    for dataset in EPOCHS:
        for seed in SEEDS:  # all methods of one seed first: a table of fewer seeds is a table as well
            for kind in FIELDS:
                for size in sizes(dataset, kind):
                    yield from (Job(dataset, method.key, kind, size, seed) for method in TABLE)


def train(job: Job) -> TradeoffPoint:
    name = METHODS[job.method].regularizer
    chosen: dict[str, Any] = {**defaults(job.dataset, name, job.kind), "epochs": EPOCHS[job.dataset]}
    chosen.pop("compact_every", None)
    chosen[f"target_{job.kind}"] = job.size
    config = TrainingConfig(dataset=job.dataset, regularizer=name, seed=job.seed, **chosen)
    settings = PathSettings(config, job.kind, [job.size], epochs_each=1)
    point, _ = next(from_scratch(settings, load_dataset(config)))
    return point


def known() -> dict[Job, TradeoffPoint]:
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    values = [json.loads(line) for line in lines]
    return {Job(**value["job"]): TradeoffPoint(**value["point"]) for value in values}


def run(minutes: float) -> None:
    done, started = known(), time.monotonic()
    for job in jobs():
        if job in done:
            continue
        if time.monotonic() - started > 60 * minutes:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # layers of one unit are meant at these sizes
            point = train(job)
        with RESULTS.open("a") as file:
            file.write(json.dumps({"job": asdict(job), "point": asdict(point)}) + "\n")
        print(job, f"{point.accuracy:.4f}", file=sys.stderr, flush=True)


def table() -> Table:
    done = known()
    rows, ranks = [], {method.key: list[float]() for method in TABLE}
    for dataset, kind, size in dict.fromkeys((job.dataset, job.kind, job.size) for job in done):
        found = {
            method.key: [p.accuracy for j, p in done.items() if j == Job(dataset, method.key, kind, size, j.seed)]
            for method in TABLE
        }
        seeds = min(map(len, found.values()))
        cells = []
        for key, accuracies in found.items():
            spread = f" ± {percent(stdev(accuracies))}" if len(accuracies) > 1 else ""
            cells.append(f"{percent(mean(accuracies))}{spread}" if accuracies else "-")
            if seeds:
                better = sum(mean(other) > mean(accuracies) for other in found.values())
                equal = sum(mean(other) == mean(accuracies) for other in found.values())
                ranks[key].append(better + (equal + 1) / 2)
        rows.append([DATASET_LABELS[dataset], kind, f"{percent(size)} %", str(seeds), *cells])
    rows.append(["average rank", "", "", "", *(f"{mean(each):.2f}" if each else "-" for each in ranks.values())])
    return Table(("data", "target", "size", "seeds", *(method.label for method in TABLE)), rows)


def main() -> None:
    torch.set_num_threads(1)
    run(float(sys.argv[1]) if len(sys.argv) > 1 else math.inf)
    text = table().markdown()
    write_atomically(FOLDER / "table.md", (text + "\n").encode())
    print(text)


if __name__ == "__main__":
    main()
