"""How much faster two workers finish a grid on DIGITS than one: wall time of `gossamer sweep`, start-up included.

    python benchmarks/sweep_workers.py            # about four minutes on an otherwise idle machine with two cores
    python benchmarks/sweep_workers.py --write    # also writes its result file and docs/scaling.md

Both are run in turns; the smallest time of each counts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from gossamer_lab.bench.page import publish
from gossamer_lab.bench.result import Machine, Result, Value
from gossamer_lab.training import SETTINGS

_HERE = Path(__file__).parent
_STRENGTHS = [1e-5 * 2**power for power in range(12)]


def seconds(workers: int, points: int, epochs: int) -> float:
    """The wall time of one grid."""
    vary = "strength=" + ",".join(f"{strength:.6g}" for strength in _STRENGTHS[:points])
    words = ["sweep", "digits", "--vary", vary, "--vary", "a=0.5,1", "--epochs", str(epochs), "--workers", str(workers)]
    with TemporaryDirectory() as folder:
        started = time.perf_counter()
        command = [sys.executable, "-m", "gossamer_lab", *words, "--json"]
        done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
        taken = time.perf_counter() - started
    counts = json.loads(done.stdout)
    assert counts["finished"] + counts["pruned"] == 2 * points, counts
    return taken


def main(points: int, epochs: int, repeats: int, *, write: bool) -> None:
    """Time one and two workers in turns."""
    best = dict.fromkeys((1, 2), float("inf"))
    for _ in range(repeats):
        for workers in best:
            best[workers] = min(best[workers], seconds(workers, points, epochs))
            print(f"{workers} worker{'s' if workers > 1 else ''}: {best[workers]:.1f} s", flush=True)
    rows: list[dict[str, Value]] = [
        {"workers": workers, "trials": 2 * points, "seconds": taken, "time vs one": taken / best[1]}
        for workers, taken in best.items()
    ]
    result = Result(
        name="sweep-workers",
        title=f"a grid of {2 * points} trainings on DIGITS, {epochs} epochs each",
        note="seconds: wall time of the command, start-up included; the smaller of the repetitions.",
        machine=Machine.here(),
        rows=tuple(rows),
    )
    print(result.table().markdown())
    if write:
        publish(result, _HERE / "results", _HERE.parent / "docs" / "scaling.md")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=12, help="strengths of the grid; twice as many trainings")
    parser.add_argument("--epochs", type=int, default=SETTINGS["digits"]["epochs"], help="of each training")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="write the result file and the page")
    given = parser.parse_args()
    main(given.points, given.epochs, given.repeats, write=given.write)
