"""Choose the strengths on validation images; the test images are not used.

    OMP_NUM_THREADS=1 python experiments/digits/choose.py      # writes validation.jsonl

Every candidate is trained on six splits of the 1,437 training images, 80 % for training and 20 % for validation, with
the recipe of `gossamer train digits`.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from gossamer.files import write_atomically
from gossamer_lab.data import digits, hold_out
from gossamer_lab.training import SETTINGS, TrainingConfig, assemble, open_run, regularizer_spec, train

FILE = Path(__file__).with_name("validation.jsonl")
SPLITS = range(6)
CANDIDATES = {"none": (0.0,), "integrated-tl1": (5e-4, 1e-3, 2e-3), "l1": (5e-4, 1e-3, 2e-3)}


def validate(regularizer: str, strength: float, split: int) -> dict[str, object]:
    dataset = hold_out(digits(), fraction=0.2, seed=split)
    settings = {**SETTINGS["digits"], **regularizer_spec(regularizer).parameters, "strength": strength, "seed": split}
    config = TrainingConfig(dataset="digits", regularizer=regularizer, **settings)
    model, penalty = assemble(config, dataset)
    with TemporaryDirectory() as folder:
        run = open_run(Path(folder), config)
        for _ in train(model, dataset, penalty, config, run):
            pass
        result = run.read_result()
    return {
        "regularizer": regularizer,
        "strength": strength,
        "split": split,
        "accuracy": result.accuracy,
        "params_kept": result.params_kept,
        "flops_kept": result.flops_kept,
    }


def main() -> None:
    torch.set_num_threads(1)
    results = []
    for regularizer, strengths in CANDIDATES.items():
        for strength in strengths:
            lines = [validate(regularizer, strength, split) for split in SPLITS]
            results += lines
            means = [sum(line[name] for line in lines) / len(lines) for name in ("accuracy", "params_kept")]
            print(f"{regularizer:15} {strength:7g}  accuracy {means[0]:.4f}  weights kept {means[1]:.4f}", flush=True)
    write_atomically(FILE, "".join(json.dumps(line) + "\n" for line in results).encode())


if __name__ == "__main__":
    main()
