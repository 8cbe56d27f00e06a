"""The balance of unit Tl1 between units and single weights, on DIGITS.

    python experiments/units/balance.py            # show the table of balance.jsonl
    python experiments/units/balance.py --train    # train what it lacks; an interrupted run is resumed

The recipe is that of `gossamer train digits`; a fifth of the training images is used for validation, and the test
images are not. For each balance the strength that leaves the fewest MACs after `shrink` is shown, among those that cost
at most one point of validation accuracy against no penalty (the mean over the seeds).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from statistics import fmean
from typing import Any

from gossamer_lab.training import TrainingConfig, defaults, finished_run

RESULTS = Path(__file__).with_name("balance.jsonl")
BALANCES = (0.0, 0.02, 0.1, 0.3, 0.6, 1.0)
STRENGTHS = (2e-4, 4e-4, 8e-4, 1.6e-3, 3.2e-3, 6.4e-3)
SEEDS = (0, 1)
DROP = 0.01


def settings() -> list[dict[str, Any]]:
    """All trainings: without a penalty, then by balance and strength."""
    dense = [{"regularizer": "none", "strength": 0.0, "balance": None, "seed": seed} for seed in SEEDS]
    return dense + [
        {"regularizer": "unit-tl1", "strength": strength, "balance": balance, "seed": seed}
        for seed in SEEDS
        for balance in BALANCES
        for strength in STRENGTHS
    ]


def run(setting: dict[str, Any]) -> dict[str, Any]:
    """One training; the result as a line of the file."""
    values = {**defaults("digits", setting["regularizer"]), **setting}
    config = TrainingConfig(dataset="digits", validation_fraction=0.2, **values)
    with tempfile.TemporaryDirectory() as folder:
        result = finished_run(config, Path(folder)).read_result()
    total = result.measurement["total"]
    return {
        **setting,
        "accuracy": result.accuracy,
        "params_kept": result.params_kept,
        "params_after_shrink": result.small["weights"] / total["weights"],
        "macs_after_shrink": result.small["macs"] / total["macs"],
    }


def show(results: list[dict[str, Any]]) -> None:
    """The best strength of each balance, in Markdown."""

    def mean(rows: list[dict[str, Any]], figure: str) -> float:
        return fmean(row[figure] for row in rows)

    dense = mean([row for row in results if row["regularizer"] == "none"], "accuracy")
    print(f"Without a penalty: {100 * dense:.2f} %.\n")
    print("| balance | strength | validation (%) | non-zero (%) | weights after shrink (%) | MACs after shrink (%) |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: |")
    for balance in BALANCES:
        groups = [[row for row in results if row["balance"] == balance and row["strength"] == s] for s in STRENGTHS]
        accurate = [rows for rows in groups if rows and mean(rows, "accuracy") >= dense - DROP]
        if not accurate:
            print(f"| {balance:g} | none | | | | |")
            continue
        best = min(accurate, key=lambda rows: mean(rows, "macs_after_shrink"))
        figures = ("accuracy", "params_kept", "params_after_shrink", "macs_after_shrink")
        shown = " | ".join(f"{100 * mean(best, figure):.2f}" for figure in figures)
        print(f"| {balance:g} | {best[0]['strength']:g} | {shown} |")


def main() -> None:
    """Show, or train what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", action="store_true", help="train what the result file lacks")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no further training after this time")
    arguments = parser.parse_args()
    results = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    done = [{name: row[name] for name in ("regularizer", "strength", "balance", "seed")} for row in results]
    start = time.monotonic()
    for setting in settings() if arguments.train else []:
        if setting not in done and time.monotonic() - start <= arguments.seconds:
            results.append(run(setting))
            with RESULTS.open("a") as file:
                file.write(json.dumps(results[-1]) + "\n")
            print(results[-1], flush=True)
    show(results)


if __name__ == "__main__":
    main()
