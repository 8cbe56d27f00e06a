"""The methods: each takes a task and a seed, trains, and returns the network that is deployed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial

import torch
from pruner import Pruner
from tasks import Task
from torch import nn
from training import train

import gossamer

__all__ = ["METHODS", "SCRATCH", "from_scratch", "regularized", "to_dense_macs"]

ATTACHED, REACHED = 0.1, 0.7
"""Parts of the training: regularizers are attached after the warm-up of the learning rate, by which the target chooses
the first strength; from 0.7 on the network has its final size, and the rest is recovery, or fine-tuning."""

COST_EXPONENT = 0.25
"""Between 0, by which mostly weights fall, and 0.5, the default of the command for this kind of target."""


def step_at(part: float, task: Task) -> int:
    return int(part * task.epochs * task.steps_per_epoch)


def macs(model: nn.Module, task: Task) -> int:
    return gossamer.measure(model, task.example).total.macs


def dense(task: Task, seed: int) -> nn.Module:
    model = task.build(seed)
    train(model, task.optimizer(model), task, epochs=task.epochs, seed=seed)
    return model


def unit_tl1(task: Task, seed: int) -> nn.Module:
    return to_dense_macs(task, seed, gossamer.unit_tl1)


def integrated_tl1(task: Task, seed: int) -> nn.Module:
    """The paper's regularizer, on groups of single layers."""
    return to_dense_macs(task, seed, gossamer.integrated_tl1)


def to_dense_macs(task: Task, seed: int, recipe: Callable[..., gossamer.Regularizer]) -> nn.Module:
    """Train with a regularizer to the MACs of the task, counted after `shrink`."""
    recipe = partial(recipe, cost_exponent=COST_EXPONENT)
    return regularized(task, seed, recipe, gossamer.Target(dense_flops=task.macs))


def regularized(
    task: Task, seed: int, recipe: Callable[..., gossamer.Regularizer], target: gossamer.Target
) -> nn.Module:
    """Train with a regularizer to a target, and shrink."""
    model = task.build(seed)
    optimizer, shared = task.optimizer(model), {"epochs": task.epochs, "seed": seed}
    start, end = step_at(ATTACHED, task), step_at(REACHED, task)
    train(model, optimizer, task, **shared, last=start)
    tables = [name for name, _ in model.named_parameters() if name.endswith("positions.table")]
    regularizer = recipe(model, example=task.example, skip=tables)
    gossamer.attach(optimizer, regularizer, target=target, steps=end - start)
    train(model, optimizer, task, **shared, first=start)
    return gossamer.shrink(model, task.example, form="module")


def torch_pruning(task: Task, seed: int, *, across_layers: bool) -> nn.Module:
    """Torch-Pruning: training with its regularizer, removal of the smallest groups, fine-tuning.

    Groups are ranked across layers, as in its script for CIFAR-10, or within each layer, its default. With Adam there
    is no regularizer: it is a gradient, which Adam would make as large as that of the loss.
    """
    model = task.build(seed)
    goal = task.macs * macs(model, task)
    pruner = Pruner(model, task.example, across_layers=across_layers)
    reached = step_at(REACHED, task)
    shared = {"epochs": task.epochs, "seed": seed}
    regularize = (lambda: None) if task.adam else pruner.regularize
    train(model, task.optimizer(model), task, **shared, last=reached, after_backward=regularize)
    pruner.prune(lambda network: macs(network, task), goal)
    # Its parameters are new, and so is the optimizer.
    train(model, task.optimizer(model), task, **shared, first=reached)
    return model


def from_scratch(cost: str, small: nn.Module, task: Task, seed: int) -> tuple[nn.Module, int]:
    """A network of the widths of `small`, trained from new random weights without a penalty; and its epochs.

    With equal cost, the epochs are as many as the MACs of the full training allow.
    """
    model = copy.deepcopy(small)
    torch.manual_seed(seed)
    for module in model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    longer = macs(task.build(seed), task) / macs(small, task) if cost == EQUAL_COST else 1
    epochs = round(longer * task.epochs)
    train(model, task.optimizer(model), task, epochs=epochs, seed=seed)
    return model, epochs


METHODS: dict[str, Callable[[Task, int], nn.Module]] = {
    "dense": dense,
    "unit Tl1": unit_tl1,
    "integrated Tl1 per layer": integrated_tl1,
    "Torch-Pruning, across layers": partial(torch_pruning, across_layers=True),
    "Torch-Pruning, within layers": partial(torch_pruning, across_layers=False),
}

EQUAL_COST = "from scratch, equal cost"
SCRATCH = ("from scratch, equal epochs", EQUAL_COST)
