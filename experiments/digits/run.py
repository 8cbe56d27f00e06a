"""Make the results of this experiment again: `gossamer train digits` with its defaults, seeds 0, 1 and 2.

    OMP_NUM_THREADS=1 python experiments/digits/run.py [FOLDER]      # stopped at any moment, it goes on where it was

The runs go to FOLDER (runs/digits-experiment), the ends of all nine trainings to results.jsonl.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from statistics import mean

from gossamer_lab.training import RunDirectory, RunResult

FILE = Path(__file__).with_name("results.jsonl")
SEEDS = (0, 1, 2)


def results_of(seed: int, folder: Path) -> list[RunResult]:
    path = folder / f"seed-{seed}"
    words = ["train", "digits", "--seed", str(seed), "--run-dir", str(path), "--resume"]
    subprocess.run([sys.executable, "-m", "gossamer_lab", *words], check=True)
    return [RunDirectory(path / name).read_result() for name in ("", "l1", "dense")]


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("runs") / "digits-experiment"
    results = [result for seed in SEEDS for result in results_of(seed, folder)]
    FILE.write_text("".join(json.dumps(asdict(result)) + "\n" for result in results))
    print("| regularizer | strength | test accuracy | weights kept | multiply-adds kept | seconds |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in ("integrated-tl1", "l1", "none"):
        rows = [result for result in results if result.regularizer == name]
        figures = (mean(getattr(row, field) for row in rows) for field in ("accuracy", "params_kept", "flops_kept"))
        shown = " | ".join(f"{100 * figure:.2f} %" for figure in figures)
        print(f"| {name} | {rows[0].strength:g} | {shown} | {mean(row.seconds for row in rows):.1f} |")


if __name__ == "__main__":
    main()
