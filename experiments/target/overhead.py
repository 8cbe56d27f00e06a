"""Cost of a target: the time that measuring sizes, setting the strength, the last cut and warnings take in LeNet-5.

    OMP_NUM_THREADS=1 python experiments/target/overhead.py

A training of 6,000 steps on MNIST (13 epochs in batches of 128 images) is run with each kind of target. The time inside
of the methods that a target adds to the steps is summed and divided by the time of all steps.
"""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

import gossamer
from gossamer.proximal import attach
from gossamer.proximal.approach import Approach
from gossamer.proximal.handle import ProximalStep
from gossamer.proximal.watch import Watch
from gossamer_lab.training import TrainingConfig, assemble, channels_last, load_dataset

STEPS = 6_000
KINDS = ("params", "flops", "dense_flops")


class Clock:
    """Seconds inside of a method of a class."""

    def __init__(self, owner: type, name: str) -> None:
        self.seconds = 0.0
        method = getattr(owner, name)

        def timed(*args: object, **kwargs: object) -> object:
            started = time.perf_counter()
            try:
                return method(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - started

        setattr(owner, name, timed)


def measure(kind: str, clocks: list[Clock]) -> dict[str, float | str]:
    config = TrainingConfig(dataset="mnist", regularizer="integrated-tl1", a=0.02, s=0.3, target_params=0.05)
    dataset = load_dataset(config)
    model, regularizer = assemble(config, dataset)
    assert regularizer is not None
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    attach(optimizer, regularizer, target=gossamer.Target(**{kind: 0.05}), steps=STEPS)
    order = torch.randperm(len(dataset.train_images), generator=torch.Generator().manual_seed(0))
    before, started = [clock.seconds for clock in clocks], time.perf_counter()
    for step in range(STEPS):
        first = step * 128 % (len(order) - 128)
        images, labels = dataset.training_batch(order[first : first + 128])
        optimizer.zero_grad()
        cross_entropy(model(channels_last(images)), labels).backward()
        optimizer.step()
    total = time.perf_counter() - started
    control, cut, watch = ((clock.seconds - earlier) / total for clock, earlier in zip(clocks, before, strict=True))
    return {"kind": kind, "step_ms": 1e3 * total / STEPS, "control": control, "last cut": cut, "watch": watch}


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    clocks = [Clock(Approach, "follow"), Clock(ProximalStep, "_cut"), Clock(Watch, "look")]
    results = [measure(kind, clocks) for kind in KINDS]
    Path(__file__).with_name("overhead.json").write_text(json.dumps(results, indent=2) + "\n")
    for result in results:
        print(result)


if __name__ == "__main__":
    main()
