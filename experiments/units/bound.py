"""How strong may the penalty become on the way to a target on units? The residual network, with other bounds.

    OMP_NUM_THREADS=1 python experiments/units/bound.py [MINUTES]    # trains what is missing, then the table

The bound is a constant of the library, a multiple of the first strength; it is replaced here. Without a bound the last
cut waits until the size is close to the target.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path

import residual
import torch

from gossamer.proximal import approach
from gossamer_lab.reporting.results import ResultsFile
from gossamer_lab.reporting.tables import Table


@dataclass(frozen=True)
class Job:
    """One training to 14.9 % of the MACs; no bound is None."""

    bound: float | None
    seed: int


JOBS = [Job(bound, 0) for bound in (4.0, 8.0, 12.0, None)]
FILE = ResultsFile(Path(__file__).with_name("bound.jsonl"), Job, residual.Outcome)


def outcome(job: Job) -> residual.Outcome:
    """Train with another bound."""
    usual = approach._STRONGER
    approach._STRONGER = job.bound or math.inf
    try:
        return residual.outcome(residual.Job("unit Tl1", target=0.149, cost_exponent=0.25, seed=job.seed))
    finally:
        approach._STRONGER = usual


def table() -> Table:
    rows = [
        [f"{job.bound:g}" if job.bound else "none", str(job.seed), *(f"{100 * share:.1f}" for share in figures)]
        for job, found in FILE.read().items()
        for figures in [(found.validation, found.test, found.macs_after_shrink)]
    ]
    return Table(("bound", "seed", "validation", "test", "MACs after shrink"), rows)


def main() -> None:
    torch.set_num_threads(1)
    FILE.complete(JOBS, outcome, float(sys.argv[1]) if len(sys.argv) > 1 else math.inf)
    print(table().markdown())


if __name__ == "__main__":
    main()
