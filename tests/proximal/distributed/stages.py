"""Pipelines: each process has a stage of the model, and gets the zeros of one process."""

from functools import cache, partial
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn

import gossamer
from gossamer import Target
from gossamer.regularizers import assembly

from .models import RECIPES, alone, batch, built, check_zeros, optimizer_of, refuses, same, shared_out, zero_share


class Residual(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x):
        return x + self.down(self.up(x).relu())


class Chain(nn.Module):
    """Four parts. Units lie on both sides of each boundary, the norm of a weight is in the next part, and a residual
    stream runs through the last two. A stage has some of the parts."""

    def __init__(self):
        super().__init__()
        self.part0 = nn.Sequential(nn.Conv2d(2, 6, 3), nn.ReLU(), nn.Conv2d(6, 6, 3, groups=3))
        self.part1 = nn.Sequential(nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(24, 9), nn.ReLU())
        self.part2 = nn.Sequential(nn.Linear(9, 7), Residual(7, 5))
        self.part3 = nn.Sequential(Residual(7, 4), nn.LayerNorm(7), nn.Linear(7, 3))

    def forward(self, x):
        for part in self.children():
            x = part(x)
        return x


SHAPE = (8, 2, 6, 6)

EXAMPLE = {"example": batch(SHAPE)[0]}

UNITS = {"groups": "units", **EXAMPLE}

UNIT_CASES = [
    (("unit_tl1", EXAMPLE), 0.04, "SGD"),
    (("unit_tl1", EXAMPLE), 0.03, "Adam"),
    (("integrated_tl1", UNITS), 0.1, "SGD"),
    (("combined_group_exclusive", UNITS), 0.25, "SGD"),
    (("combined_group_exclusive", UNITS), 0.3, "Adam"),
    (("group_lasso", UNITS), 0.06, "SGD"),
    (("sparse_group_lasso", UNITS), 0.02, "Adam"),
    (("group_transformed_l1", UNITS), 0.2, "SGD"),
    (("group_transformed_l1", UNITS), 0.1, "Adam"),
]

# At these strengths about half of the groups are zero after three steps.
STRENGTHS = {
    "integrated_tl1": 0.07,
    "combined_group_exclusive": 0.18,
    "group_lasso": 0.05,
    "sparse_group_lasso": 0.03,
    "group_transformed_l1": 0.115,
    "transformed_l1": 0.02,
    "l1": 0.04,
    "l2": 0.15,
}

CASES = [(recipe, STRENGTHS[recipe[0]], "SGD") for recipe in RECIPES]


# Recipe, optimizer, target.
TARGETS = [
    (("unit_tl1", EXAMPLE), "SGD", Target(dense_params=0.6)),
    (("unit_tl1", EXAMPLE), "Adam", Target(params=0.4)),
    (("integrated_tl1", EXAMPLE), "SGD", Target(bytes=9000)),
    (("integrated_tl1", EXAMPLE), "SGD", Target(dense_flops=0.6)),
    (("l1", EXAMPLE), "Adam", Target(flops=0.3)),
    (("group_lasso", {}), "SGD", Target(params=0.3)),
]


def received(rank):
    objects = [None]
    dist.recv_object_list(objects, rank)
    return objects[0]


class Training:
    """The training of one stage of several, or of the whole model in one process."""

    def __init__(self, case, stages=1, group=None, spread=alone, **options):
        (recipe, settings), strength, optimizer = case
        self.stages, self.number = stages, dist.get_rank() % stages
        self.model = spread(self._stage())
        whole = self.model if stages == 1 else built(Chain)
        self.regularizer = getattr(gossamer, recipe)(whole, strength, **settings)
        if stages > 1:
            self.regularizer = self.regularizer.on(self.model, group)
        self.optimizer = optimizer_of(optimizer, self.model.parameters())
        self.handle = gossamer.attach(self.optimizer, self.regularizer, compile=False, **options)

    def _stage(self):
        model, length = built(Chain), 4 // self.stages
        for part in set(range(4)) - set(range(self.number * length, (self.number + 1) * length)):
            delattr(model, f"part{part}")
        return model

    def train(self, steps=3):
        for _ in range(steps):
            self.optimizer.zero_grad()
            self._run(*batch(SHAPE))
            self.optimizer.step()
        return self

    def _run(self, x, y):
        """A forward and a backward pass: activations and their gradients are sent to the neighbours."""
        rank = dist.get_rank()
        if self.number > 0:
            x = received(rank - 1).requires_grad_()
        self.input, out = x, self.model(x)
        if self.number < self.stages - 1:
            dist.send_object_list([out.detach()], rank + 1)
            out.backward(received(rank + 1))
        else:
            nn.functional.cross_entropy(out, y).backward()
        if self.number > 0:
            dist.send_object_list([x.grad], rank - 1)

    def measured(self):
        return str(gossamer.measure(self.model, self.input[:1], group=dist.group.WORLD if self.stages > 1 else None))


def trained(case, *spread):
    """Some steps, the zeros held, one more step: the training, and the value and the size before that."""
    training = Training(case, *spread).train()
    value, size = training.regularizer.value(), training.measured()
    training.handle.hold()
    return training.train(1), value, size


def one_process(case):
    training, value, size = trained(case)
    units = training.regularizer.units
    share = zero_share(training.regularizer) if units is None else units.dead().double().mean().item()
    return dict(training.model.named_parameters()), value, size, share


def check_stages():
    """Every regularizer and grouping, units too, in pipelines of two and four stages."""
    cases = UNIT_CASES + CASES
    for case, (weights, value, size, share) in zip(cases, shared_out(cases, one_process), strict=True):
        if case[0][0] != "l2":
            check_zeros(share, case)
        training, other, measured = trained(case, dist.get_world_size())
        same_stage(weights, training.model, case)
        torch.testing.assert_close(other, value)
        assert measured == size, (measured, size)


def same_stage(weights, stage, where):
    own = dict(stage.named_parameters())
    same({name: weight for name, weight in weights.items() if name in own}, stage, where)


def with_target(case, stages=1, **options):
    recipe, optimizer, target = case
    return Training((recipe, None, optimizer), stages, target=target, steps=50, **options)


def reached_by(case):
    training = with_target(case).train(52)
    return dict(training.model.named_parameters()), training.handle.reached


def check_stage_targets():
    """Every target: the zeros of one process, and its size in the end."""
    stages = dist.get_world_size()
    cases = TARGETS if stages == 2 else TARGETS[:2]
    for case, (weights, reached) in zip(cases, shared_out(cases, reached_by), strict=True):
        training = with_target(case, stages).train(52)
        same_stage(weights, training.model, case)
        assert training.handle.reached.after == reached.after <= reached.target.asked(reached.full), case
