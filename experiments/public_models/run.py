"""Shrink networks of public packages with half of their units dead, each in a process of its own.

    python experiments/public_models/run.py [--minutes 10] [--only TEXT ...] [--again]     # adds to results.jsonl

Rows that are in `results.jsonl` already are not computed again, so a run can be interrupted; delete the file to
compute everything anew, or replace the rows of some networks with `--only TEXT ... --again`. `README.md` has the
packages to install, `table.py` makes the table.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from pathlib import Path
from typing import Any

import torch
from check import check
from forks import Fork
from models import CASES, Case

import gossamer
from gossamer.files import write_atomically

RESULTS = Path(__file__).with_name("results.jsonl")
SECONDS = 600
"""A row that takes longer is an error."""


def finished() -> dict[tuple[str, str, str], dict[str, Any]]:
    """The rows that are there, in their order."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return {(row["package"], row["network"], row["dead units"]): row for row in map(json.loads, lines)}


def store(row: dict[str, Any]) -> None:
    """Add a row, or replace the one of the same network."""
    rows = finished()
    rows[row["package"], row["network"], row["dead units"]] = row
    write_atomically(RESULTS, "".join(json.dumps(each) + "\n" for each in rows.values()).encode())


def in_process(case: Case, kind: str) -> dict[str, Any]:
    """One row, computed in a fork of this process; what goes wrong there is part of the row."""
    try:
        row = Fork(functools.partial(check, case), SECONDS)(kind)
    except (RuntimeError, OSError) as error:  # what a user would see as a raw exception, and a fork without a result
        row = {"exception": str(error)}
    return {"package": case.package, "network": case.network, "dead units": kind, **row}


def warm_up() -> None:
    """Import what an export needs before the forks do, so that the seconds of a row are those of its network."""
    torch.set_num_threads(1)
    gossamer.plan(torch.nn.Linear(2, 2), torch.randn(3, 2))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no row after this time")
    parser.add_argument("--only", default=[""], nargs="+", help="only networks with one of these in package/name")
    parser.add_argument("--again", action="store_true", help="compute and replace rows that are there already")
    options = parser.parse_args()
    started, done = time.monotonic(), {} if options.again else finished()
    warm_up()
    imported: set[str] = set()
    for kind in ("zeros", "constants"):
        for case in CASES.values():
            late = time.monotonic() - started > 60 * options.minutes
            wanted = any(text in case.name for text in options.only)
            if late or not wanted or (case.package, case.network, kind) in done:
                continue
            if case.package not in imported:
                case.make()
                imported.add(case.package)
            row = in_process(case, kind)
            store(row)
            failed = row.get("error", row.get("exception"))
            share = f"{row['left'] / row['parameters']:.1%}" if failed is None else failed
            print(f"{time.monotonic() - started:5.0f} s {case.name:45} {kind:10} {share}", flush=True)


if __name__ == "__main__":
    main()
