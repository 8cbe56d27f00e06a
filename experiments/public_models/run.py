"""Shrink networks of public packages with half of their units dead, each in a process of its own.

    python experiments/public_models/run.py [--minutes 10] [--only TEXT]     # appends to results.jsonl

Rows that are in `results.jsonl` already are not computed again, so a run can be interrupted; delete the file to
compute everything anew. `README.md` has the packages to install, `table.py` makes the table.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from models import CASES, Case

HERE = Path(__file__).parent
RESULTS = HERE / "results.jsonl"
SECONDS = 240
"""A row that takes longer is an error."""


def finished() -> set[tuple[str, str, str]]:
    if not RESULTS.exists():
        return set()
    rows = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    return {(row["package"], row["network"], row["dead units"]) for row in rows}


def check(case: Case, kind: str) -> dict[str, Any]:
    """One row; what goes wrong in its process is part of it."""
    failed = {"package": case.package, "network": case.network, "dead units": kind}
    command = [sys.executable, str(HERE / "check.py"), case.name, kind]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {**failed, "exception": f"longer than {SECONDS} s"}
    if done.returncode:
        return {**failed, "exception": (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1][:300]}
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start no row after this time")
    parser.add_argument("--only", default="", help="only networks whose package/name contains this")
    options = parser.parse_args()
    started, done = time.monotonic(), finished()
    for kind in ("zeros", "constants"):
        for case in CASES.values():
            late = time.monotonic() - started > 60 * options.minutes
            if late or options.only not in case.name or (case.package, case.network, kind) in done:
                continue
            row = check(case, kind)
            with RESULTS.open("a") as file:
                file.write(json.dumps(row) + "\n")
            share = (
                f"{row['left'] / row['parameters']:.1%}" if "left" in row else row.get("error", row.get("exception"))
            )
            print(f"{case.name:45} {kind:10} {share}", flush=True)


if __name__ == "__main__":
    main()
