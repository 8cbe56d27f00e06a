"""Units against groups per layer, on a residual network with BatchNorm.

    OMP_NUM_THREADS=1 python experiments/units/residual.py [MINUTES]    # trains what is missing, then the table

Fashion-MNIST, the first 12,000 training images, 8 epochs, SGD with momentum 0.9, autocast to bfloat16. A strength warms
up over the first 30 % of the steps and ends at 65 %, from where on the zeros are held. A target (a part of the MACs) is
attached after 10 % and reached at 65 %. The accuracy on 5,000 further training images compares the methods; the test
accuracy is shown beside it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

import gossamer
from gossamer_lab.data import load
from gossamer_lab.reporting.results import ResultsFile
from gossamer_lab.reporting.tables import Table
from gossamer_lab.training import accuracy

TRAIN, VALIDATE, EPOCHS, BATCH, RATE = 12_000, 5_000, 8, 64, 0.05
STEPS = EPOCHS * (TRAIN // BATCH)
WARM_UP, ATTACHED, HOLD = (int(part * STEPS) for part in (0.3, 0.1, 0.65))

Maker = Callable[..., gossamer.Regularizer]
METHODS: dict[str, Maker | None] = {
    "none": None,
    "group lasso": gossamer.group_lasso,
    "integrated Tl1": gossamer.integrated_tl1,
    "group Tl1": gossamer.group_transformed_l1,
    "unit Tl1": gossamer.unit_tl1,
}


@dataclass(frozen=True)
class Job:
    """One training, with a strength or a target; None is the default of the method, groups per layer among them."""

    method: str
    strength: float | None = None
    target: float | None = None
    groups: str | None = None
    scale_by_size: bool | None = None
    balance: float | None = None
    a: float | None = None
    keep_norms: bool | None = None
    cost_exponent: float | None = None
    seed: int = 0

    @property
    def options(self) -> dict[str, object]:
        names = ("groups", "scale_by_size", "balance", "a", "keep_norms", "cost_exponent")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


@dataclass(frozen=True)
class Outcome:
    """Accuracies, and sizes relative to the network without a penalty."""

    validation: float
    test: float
    params_kept: float
    params_after_shrink: float
    macs_after_shrink: float


JOBS = [
    Job("none"),
    Job("unit Tl1", 2e-3, balance=0.1),
    Job("unit Tl1", 2.2e-3, balance=0.1),
    Job("integrated Tl1", 5e-3),
    Job("integrated Tl1", 3e-3),
    Job("integrated Tl1", 2.2e-3),
    # At equal MACs: more of the cheap channels of the later blocks, fewer of the expensive ones of the first.
    Job("unit Tl1", 1.8e-3, balance=0.1, cost_exponent=0.5),
    Job("unit Tl1", 1.5e-3, balance=0.1, cost_exponent=0.5),
    Job("unit Tl1", 1.7e-3, balance=0.1, cost_exponent=0.5),
    *(Job("unit Tl1", 1.7e-3, balance=0.1, cost_exponent=0.5, seed=seed) for seed in (1, 2)),
    *(Job("integrated Tl1", 2.2e-3, seed=seed) for seed in (1, 2)),
    *(Job("unit Tl1", target=0.149, cost_exponent=0.25, seed=seed) for seed in range(3)),
    Job("unit Tl1", target=0.149, cost_exponent=0.5),
    Job("unit Tl1", 1.7e-3, balance=0.02, cost_exponent=0.5),
    Job("integrated Tl1", target=0.85),
    Job("unit Tl1", 2e-3, balance=0.1, keep_norms=False),
    Job("group Tl1", 2e-3, groups="units", scale_by_size=True),
    Job("group lasso", 2e-3, groups="units"),
    Job("integrated Tl1", 2e-3, groups="units", scale_by_size=True),
    Job("group lasso", 4e-3),
]
FILE = ResultsFile(Path(__file__).with_name("residual.jsonl"), Job, Outcome)


class Block(nn.Module):
    """Two convolutions around which the input is added."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        stride = 1 if before == after else 2
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(after)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(after)
        self.shortcut: nn.Module = nn.Identity()
        if before != after:
            self.shortcut = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        y = self.second_norm(self.second(F.relu(self.first_norm(self.first(x)))))
        return F.relu(y + self.shortcut(x))


def network() -> nn.Module:
    """Stem 16, blocks 16, 32, 32, 48."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()),
        *(Block(16, 16), Block(16, 32), Block(32, 32), Block(32, 48)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 10)),
    )


def attach(job: Job, model: nn.Module, optimizer: torch.optim.Optimizer, example: Tensor) -> gossamer.ProximalStep:
    """Attach the regularizer of a job. Groups per layer with a strength do not see the graph."""
    make = METHODS[job.method]
    assert make is not None
    graph = {"example": example} if job.method == "unit Tl1" or job.groups == "units" or job.target else {}
    regularizer = make(model, job.strength, **graph, **job.options)
    if job.target is None:
        return gossamer.attach(optimizer, regularizer, schedule=gossamer.warm_up(WARM_UP))
    target = gossamer.Target(dense_flops=job.target)
    return gossamer.attach(optimizer, regularizer, target=target, steps=HOLD - ATTACHED)


def trained(job: Job) -> nn.Module:
    """Train in bfloat16 arithmetic on float32 weights."""
    torch.manual_seed(job.seed)
    data = load("fashion-mnist")
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    order = torch.cat([torch.randperm(TRAIN)[: TRAIN // BATCH * BATCH] for _ in range(EPOCHS)])
    handle = None
    for step, batch in enumerate(order.split(BATCH)):
        if METHODS[job.method] is not None and step == (0 if job.target is None else ATTACHED):
            handle = attach(job, model, optimizer, data.train_images[:2])
        if handle is not None and step == HOLD and not handle.held:
            handle.hold()
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(model(data.train_images[batch]), data.train_labels[batch])
        loss.backward()
        optimizer.step()
        decay.step()
    return model.eval()


def outcome(job: Job) -> Outcome:
    """Train, shrink, measure."""
    model, data = trained(job), load("fashion-mnist")
    small = gossamer.shrink(model, data.example)
    full, left = (gossamer.measure(each, data.example).total for each in (network(), small))
    return Outcome(
        validation=accuracy(small, data.train_images[-VALIDATE:], data.train_labels[-VALIDATE:]),
        test=accuracy(small, data.test_images, data.test_labels),
        params_kept=gossamer.measure(model, data.example).params_kept,
        params_after_shrink=left.weights / full.weights,
        macs_after_shrink=left.macs / full.macs,
    )


def table() -> Table:
    """In the order of the list."""
    rows, done = [], FILE.read()
    for job in (job for job in JOBS if job in done):
        found, options = done[job], ", ".join(f"{name}={value}" for name, value in job.options.items())
        size = f"{job.strength:g}" if job.strength else f"{job.target:.1%} of the MACs" if job.target else ""
        rows.append(
            [job.method, options, size, str(job.seed), *(f"{100 * share:.1f}" for share in vars(found).values())]
        )
    figures = ("validation", "test", "non-zero", "weights after shrink", "MACs after shrink")
    return Table(("regularizer", "options", "strength or target", "seed", *figures), rows, align="lll")


def main() -> None:
    torch.set_num_threads(1)
    FILE.complete(JOBS, outcome, float(sys.argv[1]) if len(sys.argv) > 1 else math.inf)
    print(table().markdown())


if __name__ == "__main__":
    main()
