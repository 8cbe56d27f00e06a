"""How much faster two workers finish a grid on DIGITS than one: wall time of `gossamer sweep`, start-up included.

    python benchmarks/sweep_workers.py            # about four minutes on an otherwise idle machine with two cores
    python benchmarks/sweep_workers.py --write    # also writes its result file and docs/scaling.md

Both are run in turns; the smallest time of each counts.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from tempfile import TemporaryDirectory

from scaling import options, show

from gossamer_lab.bench.result import Value
from gossamer_lab.training import SETTINGS

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
    """Time one and two workers in turns, on a grid of twice as many trainings as points."""
    best = dict.fromkeys((1, 2), float("inf"))
    for _ in range(repeats):
        for workers in best:
            best[workers] = min(best[workers], seconds(workers, points, epochs))
            print(f"{workers} worker{'s' if workers > 1 else ''}: {best[workers]:.1f} s", flush=True)
    rows: list[dict[str, Value]] = [
        {"workers": workers, "trials": 2 * points, "seconds": taken, "time vs one": taken / best[1]}
        for workers, taken in best.items()
    ]
    show(
        name="sweep-workers",
        title=f"a grid of {2 * points} trainings on DIGITS, {epochs} epochs each",
        note="seconds: wall time of the command, start-up included; the smaller of the repetitions.",
        rows=rows,
        write=write,
    )


if __name__ == "__main__":
    given = options(__doc__, points=12, epochs=int(SETTINGS["digits"]["epochs"]), repeats=2)
    main(given.points, given.epochs, given.repeats, write=given.write)
