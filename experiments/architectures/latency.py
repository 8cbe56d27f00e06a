"""The latency of the networks that run.py has stored, relative to the dense network in the same run.

    OMP_NUM_THREADS=1 python experiments/architectures/latency.py      # writes latency.json and table.md

Medians over rounds in which all networks of an architecture take turns; one thread, PyTorch as it is. The first seed.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from methods import METHODS, SCRATCH
from run import Job
from table import show
from tasks import TASKS

from gossamer.files import write_atomically
from gossamer.measurement import latencies

ROUNDS = 200
BATCHES = (1, 64)


def relative(architecture: str) -> dict[str, dict[str, float]]:
    """By method and batch size; the method "dense" has milliseconds."""
    stored = {method: Job(architecture, method, 0).file for method in (*METHODS, *SCRATCH)}
    models = {method: torch.load(file, weights_only=False) for method, file in stored.items() if file.exists()}
    found: dict[str, dict[str, float]] = {method: {} for method in models}
    for batch in BATCHES:
        images = TASKS[architecture].data.test_images[:batch]
        seconds = dict(zip(models, latencies(list(models.values()), images, ROUNDS), strict=True))
        for method in models:
            found[method][str(batch)] = seconds[method] / seconds["dense"]
        found["dense"][f"{batch}, milliseconds"] = 1000 * seconds["dense"]
    return found


def main() -> None:
    torch.set_num_threads(1)
    trained = [name for name in TASKS if Job(name, "dense", 0).file.exists()]
    times = {name: relative(name) for name in trained}
    file = Path(__file__).with_name("latency.json")
    write_atomically(file, (json.dumps(times, indent=1) + "\n").encode())
    show()


if __name__ == "__main__":
    main()
