"""The training loop that all methods share."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from tasks import Task
from torch import nn

__all__ = ["train"]

WARM_UP = 0.05


def rate(part: float) -> float:
    """The learning rate after a part of the training: a linear warm-up, then a cosine, relative to the largest."""
    return min(1.0, part / WARM_UP) * (1 + math.cos(math.pi * part)) / 2


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    task: Task,
    *,
    epochs: int,
    seed: int,
    first: int = 0,
    last: int | None = None,
    after_backward: Callable[[], None] = lambda: None,
    done: float = 0.0,
) -> None:
    """The steps from `first` to `last` of a training of `epochs`; batches and rates depend on the step alone.

    The learning rate is that of a training of which the part `done` has been done at step 0.
    """
    model.train()
    per_epoch = task.steps_per_epoch
    steps = epochs * per_epoch
    for step in range(first, steps if last is None else last):
        epoch, number = divmod(step, per_epoch)
        if number == 0 or step == first:
            order = torch.randperm(len(task.data.train_labels), generator=_generator(seed, epoch))
        images, labels = task.data.training_batch(order[number * task.batch : (number + 1) * task.batch])
        for group in optimizer.param_groups:
            group["lr"] = task.rate * rate(done + (1 - done) * (step + 1) / steps)
        with torch.autocast("cpu", torch.bfloat16, enabled=task.bfloat16):
            outputs = model(images)
        loss = task.loss(outputs.float(), images, labels)
        optimizer.zero_grad()
        loss.backward()
        after_backward()
        optimizer.step()


def _generator(seed: int, epoch: int) -> torch.Generator:
    return torch.Generator().manual_seed(1_000_003 * seed + epoch)
