"""The training of the estimators: stochastic gradients with momentum on tensors in memory, and the proximal step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gossamer.adapters.target import options_for
from gossamer.errors import GossamerError
from gossamer.proximal import attach
from gossamer.regularizers import Regularizer
from gossamer.targets import Reached, Target

__all__ = ["Problem", "train"]

# Gradients of scaled features are smaller; those of features that are not scaled would make the training diverge.
_LARGEST_GRADIENT = 10.0


@dataclass(frozen=True)
class Problem:
    """What a network is trained on.

    Attributes:
        inputs: One sample a row.
        targets: What the loss compares the outputs with.
        loss: From outputs and targets to the mean loss.
        lr: The learning rate.
        batch_size: Samples in a batch; all of them if there are fewer.
    """

    inputs: Tensor
    targets: Tensor
    loss: Callable[[Tensor, Tensor], Tensor]
    lr: float
    batch_size: int

    def optimizer(self, network: nn.Module) -> Optimizer:
        """The optimizer of all trainings."""
        return torch.optim.SGD(network.parameters(), lr=self.lr, momentum=0.9, nesterov=True)

    def batches(self) -> Iterator[Tensor]:
        """The indices of one epoch's batches, in random order."""
        yield from torch.randperm(len(self.inputs)).split(self.batch_size)  # type: ignore[no-untyped-call]

    def step(self, network: nn.Module, optimizer: Optimizer, batch: Tensor) -> None:
        """One step of the optimizer on one batch."""
        optimizer.zero_grad()
        loss = self.loss(network(self.inputs[batch]), self.targets[batch])
        if not bool(torch.isfinite(loss)):
            raise GossamerError(f"The training has diverged. Scale the features, or lower `lr={self.lr}`.")
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(network.parameters(), _LARGEST_GRADIENT)
        optimizer.step()


def train(
    problem: Problem,
    network: nn.Module,
    regularizer: Regularizer,
    *,
    epochs: int,
    hold_at: float,
    target: Target | None,
) -> Reached | None:
    """Minimise loss + strength * Omega in place, with a learning rate that falls to zero.

    Args:
        problem: What to train on.
        network: What is trained; at the end in evaluation mode.
        regularizer: The penalty.
        epochs: Passes over the data.
        hold_at: The fraction of the epochs after which the penalty ends and the zeros stay.
        target: The size to reach by then; it drives the strength.

    Returns:
        How the target was reached; None without one.
    """
    optimizer = problem.optimizer(network)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    batches = math.ceil(len(problem.inputs) / problem.batch_size)
    handle = attach(optimizer, regularizer, **options_for(target, hold_at, epochs * batches))
    network.train()
    for epoch in range(epochs):
        if target is None and not handle.held and epoch >= hold_at * epochs:
            handle.hold()
        for batch in problem.batches():
            problem.step(network, optimizer, batch)
        scheduler.step()
    handle.remove()
    network.eval()
    return handle.reached
