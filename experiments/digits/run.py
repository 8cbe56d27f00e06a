"""Reproduce the results: `gossamer train digits --target-params 1%`, seeds 0, 1 and 2.

    OMP_NUM_THREADS=1 python experiments/digits/run.py [FOLDER]      # resumes after an interruption

The runs are written to FOLDER (default: runs/digits-experiment), the results of all nine trainings to results.jsonl.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from statistics import mean

from gossamer.files import write_atomically
from gossamer_lab.reporting.tables import Table, percent
from gossamer_lab.training import RunDirectory, RunResult

FILE = Path(__file__).with_name("results.jsonl")
SEEDS = (0, 1, 2)


def results_of(seed: int, folder: Path) -> list[RunResult]:
    path = folder / f"seed-{seed}"
    words = ["train", "digits", "--target-params", "1%", "--seed", str(seed), "--run-dir", str(path)]
    words += ["--resume"] * (path / "config.json").exists()
    subprocess.run([sys.executable, "-m", "gossamer_lab", *words], check=True)
    return [RunDirectory(path / name).read_result() for name in ("", "l1", "dense")]


def summary(results: list[RunResult]) -> Table:
    rows = []
    for name in ("integrated-tl1", "l1", "none"):
        runs = [result for result in results if result.regularizer == name]
        figures = (mean(getattr(run, field) for run in runs) for field in ("accuracy", "params_kept", "flops_kept"))
        seconds = mean(run.seconds for run in runs)
        rows.append(
            [
                name,
                f"{mean(run.strength for run in runs):.2g}",
                *(f"{percent(figure)} %" for figure in figures),
                f"{seconds:.1f}",
            ]
        )
    columns = ("regularizer", "strength", "test accuracy", "weights kept", "MACs kept", "seconds")
    return Table(columns, rows)


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("runs") / "digits-experiment"
    results = [result for seed in SEEDS for result in results_of(seed, folder)]
    write_atomically(FILE, "".join(json.dumps(asdict(result)) + "\n" for result in results).encode())
    print(summary(results).markdown())


if __name__ == "__main__":
    main()
