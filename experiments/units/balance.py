"""The balance of unit Tl1 between units and single weights, on DIGITS.

    OMP_NUM_THREADS=1 python experiments/units/balance.py [MINUTES]     # trains what is missing, then the table

The recipe is that of `gossamer train digits`; a fifth of the training images is used for validation, and the test
images are not. For each balance the strength that leaves the fewest MACs after `shrink` is shown, among those that cost
at most one point of validation accuracy against no penalty (the mean over the seeds).
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

import torch

from gossamer_lab.reporting.results import ResultsFile
from gossamer_lab.reporting.tables import Table, percent
from gossamer_lab.training import TrainingConfig, defaults, finished_run

BALANCES = (0.0, 0.02, 0.1, 0.3, 0.6, 1.0)
STRENGTHS = (2e-4, 4e-4, 8e-4, 1.6e-3, 3.2e-3, 6.4e-3)
SEEDS = (0, 1)
DROP = 0.01


@dataclass(frozen=True)
class Job:
    """One training."""

    regularizer: str
    strength: float
    balance: float | None
    seed: int


@dataclass(frozen=True)
class Outcome:
    """Accuracy on the validation images, and sizes relative to the full network."""

    accuracy: float
    params_kept: float
    params_after_shrink: float
    macs_after_shrink: float


FILE = ResultsFile(Path(__file__).with_name("balance.jsonl"), Job, Outcome)


def jobs() -> Iterator[Job]:
    """All trainings: without a penalty, then by balance and strength."""
    yield from (Job("none", 0.0, None, seed) for seed in SEEDS)
    for seed in SEEDS:
        for balance in BALANCES:
            yield from (Job("unit-tl1", strength, balance, seed) for strength in STRENGTHS)


def train(job: Job) -> Outcome:
    """Train, and read the result."""
    values = {**defaults("digits", job.regularizer), **asdict(job)}
    config = TrainingConfig(dataset="digits", validation_fraction=0.2, **values)
    with tempfile.TemporaryDirectory() as folder:
        result = finished_run(config, Path(folder)).read_result()
    total = result.measurement["total"]
    return Outcome(
        accuracy=result.accuracy,
        params_kept=result.params_kept,
        params_after_shrink=result.small["weights"] / total["weights"],
        macs_after_shrink=result.small["macs"] / total["macs"],
    )


def show() -> None:
    """The best strength of each balance, in Markdown."""
    done = FILE.read()

    def means(balance: float | None, strength: float) -> Outcome | None:
        found = [o for j, o in done.items() if (j.balance, j.strength) == (balance, strength)]
        return Outcome(*map(fmean, zip(*(asdict(o).values() for o in found), strict=True))) if found else None

    dense = means(None, 0.0)
    assert dense is not None
    rows = []
    for balance in BALANCES:
        found = {strength: means(balance, strength) for strength in STRENGTHS}
        accurate = {s: o for s, o in found.items() if o is not None and o.accuracy >= dense.accuracy - DROP}
        if not accurate:
            rows.append([f"{balance:g}", "none", *[""] * 4])
            continue
        strength, best = min(accurate.items(), key=lambda item: item[1].macs_after_shrink)
        rows.append([f"{balance:g}", f"{strength:g}", *(percent(value) for value in asdict(best).values())])
    figures = ("validation (%)", "non-zero (%)", "weights after shrink (%)", "MACs after shrink (%)")
    print(f"Without a penalty: {percent(dense.accuracy)} %.\n")
    print(Table(("balance", "strength", *figures), rows, align="r").markdown())


def main() -> None:
    torch.set_num_threads(1)
    FILE.complete(jobs(), train, float(sys.argv[1]) if len(sys.argv) > 1 else math.inf)
    show()


if __name__ == "__main__":
    main()
