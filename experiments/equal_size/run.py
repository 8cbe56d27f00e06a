"""The paper's table at equal size: all methods by targets, so that only accuracies differ.

    OMP_NUM_THREADS=1 python experiments/equal_size/run.py [MINUTES] [DATASET ...]  # train the missing, then tables

Every training is one line of results.jsonl. A run that is interrupted, or ends after MINUTES, continues with the first
training that is missing.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from figure import Curve, Rows, draw, draw_curves

import gossamer
from gossamer.files import write_atomically
from gossamer_lab.paper.methods import ITL, L1, TABLE, Method
from gossamer_lab.paper.outcomes import Outcome, read_outcomes
from gossamer_lab.paper.published import DATASET_LABELS, PUBLISHED
from gossamer_lab.reporting.results import ResultsFile
from gossamer_lab.reporting.tables import Table, mean_std, percent
from gossamer_lab.training import TrainingConfig, defaults, load_dataset
from gossamer_lab.training.path import TradeoffPoint, train_to_target

FOLDER = Path(__file__).parent
SEEDS = range(3)
# Fewer epochs than in experiments/table, the same for all methods: hours instead of days on two cores.
EPOCHS = {"pendigits": 40, "sdd": 10, "mnist": 6, "fashion-mnist": 4, "cifar-10": 4}
# The large images in bfloat16 arithmetic, which halves the time; weights and sizes are float32.
BFLOAT16 = ("mnist", "fashion-mnist", "cifar-10")
WITH_PUBLISHED = ("pendigits", "sdd", "mnist")

UNIT = Method("unit-tl1", "unit Tl1", "unit Tl1", "unit-tl1")
ON_UNITS = (
    L1,
    Method("sgl-units", "SGL, units", "SGL", "sparse-group-lasso-of-units"),
    Method("cges-units", "CGES, units", "CGES", "combined-group-exclusive-of-units"),
    Method("itl-units", "integrated Tl1, units", "ITL", "integrated-tl1-of-units"),
    UNIT,
)
# What is counted, and by which methods: after `shrink`, those whose groups are what `shrink` removes.
METHODS = {"params": (*TABLE, UNIT), "flops": (*TABLE, UNIT), "dense_flops": ON_UNITS}
CURVE = ("l1", "itl-units")  # at half and at the whole of what l1 leaves after `shrink` in the table
FIELDS = {"params": "params_kept", "flops": "flops_kept", "dense_flops": "dense_flops"}
TABLES = {"table.md": ("params", "flops"), "units.md": ("dense_flops",)}


@dataclass(frozen=True)
class Job:
    """One training."""

    dataset: str
    method: str
    kind: str
    size: float
    seed: int


FILE = ResultsFile(FOLDER / "results.jsonl", Job, TradeoffPoint)


def sizes(dataset: str, kind: str) -> list[float]:
    """The sizes of integrated Tl1 in the table, and the published ones.

    After `shrink`, half of what l1 leaves there of the MACs or of the weights, whichever is smaller.
    """
    outcomes = read_outcomes(FOLDER.parent / "table" / f"{dataset}.jsonl")
    if kind == "dense_flops":
        left = [(each.small_flops, each.small_params) for each in _of(L1, outcomes)]
        return [_rounded(min(map(mean, zip(*left, strict=True))) / 2)]
    found = [mean(getattr(each.result, FIELDS[kind]) for each in _of(ITL, outcomes))]
    if dataset in WITH_PUBLISHED:
        found.append(getattr(PUBLISHED[dataset, ITL.key], FIELDS[kind]))
    return [_rounded(size) for size in found]


def _of(method: Method, outcomes: list[Outcome]) -> list[Outcome]:
    return [each for each in outcomes if each.job.key == method.key]


def _rounded(size: float) -> float:
    return float(f"{size:.3g}")


def jobs(dataset: str) -> Iterator[Job]:
    """All trainings of a data set; all methods of one seed first: a table of fewer seeds is a table as well."""
    for seed in SEEDS:
        for kind, methods in METHODS.items():
            for size in sizes(dataset, kind):
                yield from (Job(dataset, method.key, kind, size, seed) for method in methods)
            if kind == "dense_flops":
                yield from (Job(dataset, key, kind, _rounded(2 * sizes(dataset, kind)[0]), seed) for key in CURVE)


def train(job: Job) -> TradeoffPoint:
    """Train to the target of a job."""
    name = next(method.regularizer for method in METHODS[job.kind] if method.key == job.method)
    chosen: dict[str, Any] = {**defaults(job.dataset, name, job.kind), "epochs": EPOCHS[job.dataset]}
    # Removal during the training takes a second, longer than an epoch of the small networks.
    chosen["compact_every"] = 1 if job.dataset in BFLOAT16 else None
    chosen[f"target_{job.kind}"] = job.size
    if job.kind == "dense_flops":  # weights and MACs are both to be small
        chosen["cost_exponent"] = 0.0
    config = TrainingConfig(dataset=job.dataset, regularizer=name, seed=job.seed, **chosen)
    arithmetic = torch.bfloat16 if job.dataset in BFLOAT16 else torch.float32
    target = gossamer.Target(**{job.kind: job.size})
    return train_to_target(config, target, load_dataset(config), arithmetic)[0]


Done = dict[Job, TradeoffPoint]
Row = tuple[str, str, float]


def rows_of(done: Done, *kinds: str) -> dict[Row, dict[str, list[TradeoffPoint]]]:
    """The trainings by data set, kind and size, then by method; the data sets in one order, whatever the file's."""
    found: dict[Row, dict[str, list[TradeoffPoint]]] = {}
    order = list(EPOCHS)
    settings = dict.fromkeys((job.dataset, job.kind, job.size) for job in done if job.kind in kinds)
    for dataset, kind, size in sorted(settings, key=lambda row: (order.index(row[0]), row[1] == "flops", row[2])):
        found[dataset, kind, size] = {
            m.key: [p for j, p in done.items() if j == Job(dataset, m.key, kind, size, j.seed)] for m in METHODS[kind]
        }
    return found


def table(done: Done, kinds: tuple[str, ...]) -> Table:
    """Accuracies, and the average rank of each method over the rows that all methods have."""
    methods = METHODS[kinds[0]]
    rows, means = [], list[tuple[str, dict[str, float]]]()
    for (dataset, kind, size), found in rows_of(done, *kinds).items():
        means.append((kind, {key: mean(p.accuracy for p in points) for key, points in found.items() if points}))
        seeds = max(map(len, found.values()))
        cells = [_cell(points, kind) for points in found.values()]
        rows.append([DATASET_LABELS[dataset], kind, f"{percent(size)} %", str(seeds), *cells])
    rows.append(_average_ranks("average rank", [found for _, found in means], methods, methods))
    for kind in kinds if len(kinds) > 1 else ():
        of_kind = [found for each, found in means if each == kind]
        rows.append(_average_ranks(f"average rank, {kind}, methods of the paper", of_kind, TABLE, methods))
    return Table(("data", "target", "size", "seeds", *(method.label for method in methods)), rows)


def _average_ranks(
    label: str, found: list[dict[str, float]], ranked: tuple[Method, ...], columns: tuple[Method, ...]
) -> list[str]:
    """A row: the average rank of some methods among themselves, over the settings that all columns have."""
    keys = [method.key for method in ranked]
    complete = [means for means in found if len(means) == len(columns)]
    ranks = {key: [1 + sum(means[other] > means[key] for other in keys) for means in complete] for key in keys}
    cells = [f"{mean(ranks[method.key]):.2f}" if ranks.get(method.key) else "-" for method in columns]
    return [label, "", "", "", *cells]


def _cell(points: list[TradeoffPoint], kind: str) -> str:
    if not points:
        return "-"
    weights = f" ({percent(mean(point.dense_params for point in points))})" if kind == "dense_flops" else ""
    return mean_std([100 * point.accuracy for point in points]) + weights


def figure(done: Done) -> None:
    """Draw the sizes that all methods have, and the accuracy over the size after `shrink`."""
    panels: dict[str, Rows] = {}
    for kind, title in {"params": "equal weights", "flops": "equal MACs"}.items():
        panels[title] = {
            f"{DATASET_LABELS[dataset]}, {percent(size)} %": {
                key: [100 * point.accuracy for point in points] for key, points in found.items()
            }
            for (dataset, _, size), found in rows_of(done, kind).items()
            if all(found.values())
        }
    labels = {method.key: method.label for method in METHODS["params"] if method is not L1}
    draw(panels, labels, FOLDER / "equal_size.png")
    curves: dict[str, dict[str, Curve]] = {}
    for (dataset, _, size), found in rows_of(done, "dense_flops").items():
        panel = curves.setdefault(DATASET_LABELS[dataset], {key: {} for key in CURVE})
        for key in CURVE:
            panel[key][100 * size] = [100 * point.accuracy for point in found[key]]
    draw_curves(curves, dict(zip(CURVE, ("l1", "integrated Tl1 on units"), strict=True)), FOLDER / "after_shrink.png")


def main() -> None:
    """Train, then write the tables."""
    torch.set_num_threads(1)
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else math.inf
    datasets = sys.argv[2:] or list(EPOCHS)
    FILE.complete((job for dataset in datasets for job in jobs(dataset)), train, minutes)
    for name, kinds in TABLES.items():
        text = table(FILE.read(), kinds).markdown()
        write_atomically(FOLDER / name, (text + "\n").encode())
        print(text)
    figure(FILE.read())


if __name__ == "__main__":
    main()
