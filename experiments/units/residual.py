"""Units against groups per layer, on a residual network with BatchNorm.

    python experiments/units/residual.py            # show the table of residual.jsonl
    python experiments/units/residual.py --train    # train what residual.jsonl lacks; an interrupted run is resumed

Fashion-MNIST, the first 12,000 training images, 8 epochs, SGD with momentum 0.9, autocast to bfloat16; the penalty
warms up over the first 30 % of the steps and ends at 65 %, from where on its zeros are held. The accuracy on 5,000
further training images compares the methods; the test accuracy is shown beside it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

import gossamer
from gossamer_lab.data import load

RESULTS = Path(__file__).with_name("residual.jsonl")
CHECKPOINTS = Path("runs/units")
TRAIN, VALIDATE, EPOCHS, BATCH, RATE = 12_000, 5_000, 8, 64, 0.05
WARM_UP, HOLD = 0.3, 0.65

Maker = Callable[..., gossamer.Regularizer]


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


METHODS: dict[str, Maker | None] = {
    "none": None,
    "group lasso": gossamer.group_lasso,
    "integrated Tl1": gossamer.integrated_tl1,
    "group Tl1": gossamer.group_transformed_l1,
    "unit Tl1": gossamer.unit_tl1,
    "l1": gossamer.l1,
    "sparse group lasso": gossamer.sparse_group_lasso,
}

# (method, strength, options); without `groups` those of today, per layer
SETTINGS: list[tuple[str, float, dict[str, Any]]] = [
    ("unit Tl1", 2e-3, {"balance": 0.1}),
    ("integrated Tl1", 5e-3, {}),
    ("integrated Tl1", 3e-3, {}),
    ("unit Tl1", 2.2e-3, {"balance": 0.1}),
    ("integrated Tl1", 2.2e-3, {}),
    ("unit Tl1", 2.2e-3, {"balance": 0.02}),
    ("none", 0.0, {}),
    ("integrated Tl1", 1e-2, {}),
    ("group lasso", 4e-3, {}),
    ("unit Tl1", 3e-3, {"balance": 0.1}),
    ("unit Tl1", 2e-3, {"balance": 0.1, "keep_norms": False}),
    ("unit Tl1", 1e-3, {"balance": 0.1}),
    ("group Tl1", 2e-3, {"groups": "units", "scale_by_size": True}),
    ("group lasso", 2e-3, {"groups": "units"}),
    ("integrated Tl1", 2e-3, {"groups": "units", "scale_by_size": True}),
    ("integrated Tl1", 2e-3, {"scale_by_size": True}),
    ("integrated Tl1", 2e-2, {}),
    ("group lasso", 1e-3, {}),
    ("unit Tl1", 2e-3, {"balance": 0.3}),
]


class Run:
    """One training, whose state is stored after every epoch."""

    def __init__(self, method: str, strength: float, options: dict[str, Any], seed: int) -> None:
        torch.manual_seed(seed)
        data = load("fashion-mnist")
        self.images, self.labels = data.train_images[:TRAIN], data.train_labels[:TRAIN]
        self.model, self.example, self.epoch = network(), self.images[:2], 0
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=RATE, momentum=0.9)
        self.steps = EPOCHS * (TRAIN // BATCH)
        self.decay = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, self.steps)
        make, self.handle = METHODS[method], None
        if make is not None:
            # The groups per layer of today do not see the graph.
            graph = {"example": self.example} if method == "unit Tl1" or options.get("groups") == "units" else {}
            regularizer = make(self.model, strength, **graph, **options)
            schedule = gossamer.warm_up(int(WARM_UP * self.steps))
            self.handle = gossamer.attach(self.optimizer, regularizer, schedule=schedule)

    def train_epoch(self) -> None:
        """One epoch, in bfloat16 arithmetic on float32 weights."""
        step = self.epoch * (TRAIN // BATCH)
        for batch in torch.randperm(TRAIN)[: TRAIN // BATCH * BATCH].split(BATCH):
            self.optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = F.cross_entropy(self.model(self.images[batch]), self.labels[batch])
            loss.backward()
            self.optimizer.step()
            self.decay.step()
            step += 1
            if self.handle is not None and step == int(HOLD * self.steps):
                self.handle.hold()
        self.epoch += 1

    def save(self, path: Path) -> None:
        """Store everything that the next epoch depends on."""
        parts = (self.model, self.optimizer, self.decay)
        state = [part.state_dict() for part in parts]
        torch.save({"epoch": self.epoch, "state": state, "random": torch.get_rng_state()}, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)

    def load(self, path: Path) -> None:
        """Continue after the last stored epoch."""
        stored = torch.load(path)
        for part, state in zip((self.model, self.optimizer, self.decay), stored["state"], strict=True):
            part.load_state_dict(state)
        self.epoch = stored["epoch"]
        torch.set_rng_state(stored["random"])


def train(method: str, strength: float, options: dict[str, Any], seed: int = 0) -> dict[str, Any]:
    """One training; the result as a line of the file."""
    setting = {"method": method, "strength": strength, "options": options, "seed": seed}
    run = Run(method, strength, options, seed)
    checkpoint = CHECKPOINTS / f"{hashlib.sha256(key(setting).encode()).hexdigest()[:12]}.pt"
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    if checkpoint.exists():
        run.load(checkpoint)
    while run.epoch < EPOCHS:
        run.train_epoch()
        run.save(checkpoint)
    model, example = run.model.eval(), run.example
    dense, small = gossamer.measure(network(), example), gossamer.shrink(model, example)
    kept, left = gossamer.measure(model, example), gossamer.measure(small, example)
    data = load("fashion-mnist")
    result = {
        **setting,
        "validation": accuracy(small, data.train_images[-VALIDATE:], data.train_labels[-VALIDATE:]),
        "test": accuracy(small, data.test_images, data.test_labels),
        "params_kept": kept.params_kept,
        "params_after_shrink": left.total.weights / dense.total.weights,
        "macs_after_shrink": left.total.macs / dense.total.macs,
    }
    checkpoint.unlink()
    return result


@torch.no_grad()
def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """The share of images that are classified correctly."""
    found = [model(part).argmax(1) for part in images.split(500)]
    return float((torch.cat(found) == labels).double().mean())


def key(result: dict[str, Any]) -> str:
    """What a training is known by."""
    return json.dumps([result[part] for part in ("method", "strength", "options", "seed")])


def show(results: list[dict[str, Any]]) -> None:
    """The table, in Markdown."""
    print(
        "| regularizer | options | strength | validation | test | non-zero | weights after shrink | MACs after shrink |"
    )
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for r in results:
        options = ", ".join(f"{name}={value}" for name, value in r["options"].items())
        shares = [r["validation"], r["test"], r["params_kept"], r["params_after_shrink"], r["macs_after_shrink"]]
        print(f"| {r['method']} | {options} | {r['strength']:g} | " + " | ".join(f"{s:.3f}" for s in shares) + " |")


def main() -> None:
    """Show, or train what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", action="store_true", help="train what the result file lacks")
    parser.add_argument("--seconds", type=float, default=math.inf, help="start no further training after this time")
    arguments = parser.parse_args()
    results = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    done, start = {key(result) for result in results}, time.monotonic()
    for method, strength, options in SETTINGS if arguments.train else []:
        setting = {"method": method, "strength": strength, "options": options, "seed": 0}
        if key(setting) in done or time.monotonic() - start > arguments.seconds:
            continue
        results.append(train(method, strength, options))
        with RESULTS.open("a") as file:
            file.write(json.dumps(results[-1]) + "\n")
        print(results[-1], flush=True)
    show(results)


if __name__ == "__main__":
    main()
