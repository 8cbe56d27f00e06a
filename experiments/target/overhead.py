"""Cost of a target: the time that measuring sizes, setting the strength and the warnings take, in LeNet-5 on MNIST.

    OMP_NUM_THREADS=1 python experiments/target/overhead.py

The first part of a training of 6,000 steps (14 epochs of 128 images) is run with each kind of target. The time inside
of the two methods that a target adds to a step is summed and divided by the time of all steps. The first strength is
computed once in a training, so its time is divided by that of 6,000 steps.
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
from gossamer.proximal.watch import Watch
from gossamer_lab.training import TrainingConfig, assemble, channels_last, load_dataset

STEPS, RUN = 6_000, 1_010
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
    for step in range(RUN):
        first = step * 128 % (len(order) - 128)
        images, labels = dataset.training_batch(order[first : first + 128])
        optimizer.zero_grad()
        cross_entropy(model(channels_last(images)), labels).backward()
        optimizer.step()
    total = time.perf_counter() - started
    follow, first, watch = (clock.seconds - earlier for clock, earlier in zip(clocks, before, strict=True))
    control = (follow - first) / total + first / (total * STEPS / RUN)
    return {"kind": kind, "step_ms": 1e3 * total / RUN, "control": control, "watch": watch / total}


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    clocks = [Clock(Approach, "follow"), Clock(Approach, "_first_strength"), Clock(Watch, "look")]
    results = [measure(kind, clocks) for kind in KINDS]
    Path(__file__).with_name("overhead.json").write_text(json.dumps(results, indent=2) + "\n")
    for result in results:
        print(result)


if __name__ == "__main__":
    main()
