"""Train the networks of this folder: the first seed of each in the committed experiments.

    OMP_NUM_THREADS=1 python benchmarks/networks/train.py [NAME ...]      # all by default: one to two hours of one core

Configurations are read from the experiments' result files. Runs go to `runs/networks`; what is there is not trained
again. Writes NAME.safetensors and a line of results.jsonl for each.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import torch

from gossamer.files import write_atomically
from gossamer_lab.training import TrainingConfig, defaults, finished_run

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RUNS = ROOT / "runs" / "networks"
RESULTS = HERE / "results.jsonl"

# Name: result file in experiments, and the key in it; None: the defaults of `gossamer train`.
SOURCES = {
    "digits": None,
    "pendigits": ("table/pendigits", "itl"),
    "sdd": ("table/sdd", "itl"),
    "mnist": ("table/mnist", "itl"),
    "fashion-mnist": ("table/fashion-mnist", "itl"),
    "cifar-10": ("table/cifar-10", "itl"),
    "lenet5-single": ("references/results", "ours, single weights"),
    "perceptron-single": ("references/results", "ours, single weights of the perceptron"),
}


def config_of(name: str) -> TrainingConfig:
    """The configuration of a network's training."""
    source = SOURCES[name]
    if source is None:
        return TrainingConfig(dataset=name, regularizer="integrated-tl1", **defaults(name, "integrated-tl1"))
    file, key = source
    rows = map(json.loads, (ROOT / "experiments" / f"{file}.jsonl").read_text().splitlines())
    (found,) = [row["config"] for row in rows if row["key"] == key and row["config"]["seed"] == 0]
    return TrainingConfig.from_dict(found)


def main() -> None:
    """Train, and write the files."""
    torch.set_num_threads(1)
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    rows = {row["network"]: row for row in map(json.loads, lines)}
    for name in sys.argv[1:] or SOURCES:
        run = finished_run(config_of(name), RUNS / name, on_epoch=lambda metrics: print(metrics, file=sys.stderr))
        result = run.read_result()
        shutil.copy(run.small, HERE / f"{name}.safetensors")
        figures = {key: getattr(result, key) for key in ("accuracy", "params_kept", "flops_kept")}
        rows[name] = {"network": name, **figures, "bytes": run.small.stat().st_size}
        write_atomically(RESULTS, "".join(f"{json.dumps(rows[key])}\n" for key in SOURCES if key in rows).encode())
        print(json.dumps(rows[name]), flush=True)


if __name__ == "__main__":
    main()
