"""Pipelines: each process has a stage of the model, and gets the zeros of one process."""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import init_device_mesh

import gossamer
from gossamer import Target

from .models import (
    RECIPES,
    alone,
    batch,
    built,
    check_zeros,
    optimizer_of,
    refuses,
    same,
    shared_out,
    zero_share,
)


class Residual(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x):
        return x + self.down(self.up(x).relu())


class Chain(nn.Module):
    """Four parts, of which a stage has some."""

    def forward(self, x):
        for part in self.children():
            x = part(x)
        return x


class Images(Chain):
    """Units lie on both sides of each boundary, the norm of a weight is in the next part, and a residual stream runs
    through the last two."""

    def __init__(self):
        super().__init__()
        self.part0 = nn.Sequential(nn.Conv2d(2, 6, 3), nn.ReLU(), nn.Conv2d(6, 6, 3, groups=3))
        self.part1 = nn.Sequential(nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(24, 9), nn.ReLU())
        self.part2 = nn.Sequential(nn.Linear(9, 7), Residual(7, 5))
        self.part3 = nn.Sequential(Residual(7, 4), nn.LayerNorm(7), nn.Linear(7, 3))


class Stream(Chain):
    """A residual stream through all parts."""

    def __init__(self):
        super().__init__()
        self.part0, self.part1 = nn.Linear(8, 7), Residual(7, 5)
        self.part2, self.part3 = Residual(7, 4), nn.Linear(7, 3)


SHAPES = {Images: (8, 2, 6, 6), Stream: (8, 8)}

EXAMPLE = {"example": True}  # the batch

UNITS = {"groups": "units", **EXAMPLE}

UNIT_CASES = [
    (Images, ("unit_tl1", EXAMPLE), 0.055, "SGD"),
    (Images, ("integrated_tl1", UNITS), 0.1, "SGD"),
    (Images, ("sparse_group_lasso", UNITS), 0.02, "Adam"),
    (Images, ("combined_group_exclusive", UNITS), 0.25, "SGD"),
    (Images, ("combined_group_exclusive", {"exact": False, **UNITS}), 0.1, "Adam"),
    (Images, ("group_lasso", UNITS), 0.065, "SGD"),
    (Images, ("group_transformed_l1", UNITS), 0.2, "SGD"),
    (Images, ("group_transformed_l1", UNITS), 0.1, "Adam"),
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

CASES = [(Images, recipe, STRENGTHS[recipe[0]], "SGD") for recipe in RECIPES]

TARGETS = [
    ((Stream, ("unit_tl1", EXAMPLE), None, "SGD"), Target(dense_params=0.562)),
    ((Stream, ("integrated_tl1", EXAMPLE), None, "SGD"), Target(bytes=3700)),
    ((Stream, ("integrated_tl1", EXAMPLE), None, "SGD"), Target(dense_flops=0.562)),
    ((Images, ("l1", EXAMPLE), None, "Adam"), Target(flops=0.3)),
    ((Images, ("unit_tl1", EXAMPLE), None, "SGD"), Target(dense_params=0.5)),  # only the first stage keeps norms
    ((Images, ("group_lasso", {}), None, "SGD"), Target(params=0.3)),
]


class Training:
    """The training of one stage of several, or of the whole model in one process."""

    def __init__(self, case, stages=1, group=None, spread=alone, **options):
        self.kind, (recipe, settings), strength, optimizer = case
        self.stages, self.number, self.data = stages, dist.get_rank() % stages, batch(SHAPES[self.kind])
        self.model, self.before = self._stage(self.number), [self._stage(other) for other in range(self.number)]
        spread(self.model)
        with torch.device("cpu" if "example" in settings else "meta"):
            whole = self.model if stages == 1 else built(self.kind)
        settings = {**settings, "example": self.data[0]} if "example" in settings else settings
        self.regularizer = getattr(gossamer, recipe)(whole, strength, **settings)
        if stages > 1:
            self.regularizer = self.regularizer.on(self.model, group)
        parts = dict(self.model.named_children())
        self.optimizer = optimizer_of(optimizer, [{"params": list(part.parameters())} for part in parts.values()])
        for part, group in zip(parts, self.optimizer.param_groups, strict=True):
            group["lr"] *= 0.9 if part in ("part2", "part3") and not options else 1  # unequal steps inside of units
        self.handle = gossamer.attach(self.optimizer, self.regularizer, compile=False, **options)

    def _stage(self, number):
        model, length = built(self.kind), 4 // self.stages
        for part in set(range(4)) - set(range(number * length, (number + 1) * length)):
            delattr(model, f"part{part}")
        return model

    @torch.no_grad()
    def example(self):
        """What the stage is called with; its shape, not its values."""
        x = self.data[0]
        for stage in self.before:
            x = stage(x)
        return x

    def train(self, steps=3):
        for _ in range(steps):
            self.optimizer.zero_grad()
            self.forward_and_backward()
            self.optimizer.step()
        return self

    def forward_and_backward(self):
        """Activations and their gradients are sent to the neighbours."""
        rank, (x, y) = dist.get_rank(), self.data
        if self.number > 0:
            x = self.example().requires_grad_()
            dist.recv(x.detach(), rank - 1)
        out = self.model(x)
        if self.number < self.stages - 1:
            dist.send(out.detach(), rank + 1)
            gradient = torch.empty_like(out)
            dist.recv(gradient, rank + 1)
            out.backward(gradient)
        else:
            nn.functional.cross_entropy(out, y).backward()
        if self.number > 0:
            dist.send(x.grad, rank - 1)


def trained(case, *spread):
    """Some steps, the zeros held, one more step: the training, and the value and the size before that."""
    training = Training(case, *spread).train()
    group = dist.group.WORLD if training.stages > 1 else None
    size = str(gossamer.measure(training.model, training.example()[:1], group=group))
    value = training.regularizer.value()
    training.handle.hold()
    return training.train(1), value, size


def one_process(case):
    training, value, size = trained(case)
    units = training.regularizer.units
    share = zero_share(training.regularizer) if units is None else units.dead().double().mean().item()
    return dict(training.model.named_parameters()), value, size, share


def check_stages():
    """Every regularizer and grouping, units too."""
    world = dist.get_world_size()
    cases = UNIT_CASES + CASES
    references = list(zip(cases, shared_out(cases, one_process), strict=True))
    for case, reference in references:
        check_stage(case, reference, world)
    if world == 4:
        group, sharded = sharded_stages()
        check_stage(*references[0], 2)  # two pipelines, with the same weights
        check_stage(*references[0], 2, group)
        check_stage(*references[2], 2, group, sharded)
        refuses("group=mesh", Training, UNIT_CASES[0], 2, None, sharded)


def sharded_stages():
    """Two stages, each over two processes: the processes of a pipeline, and what spreads a stage."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "stages"))

    def sharded(stage):
        for part in stage.children():
            fully_shard(part, mesh=mesh["data"])

    return mesh.get_group("stages"), sharded


def check_stage(case, reference, *spread):
    weights, value, size, share = reference
    if case[1][0] != "l2":
        check_zeros(share, case)
    training, other, measured = trained(case, *spread)
    same_stage(weights, training.model, (case, spread))
    torch.testing.assert_close(other, value)
    assert measured == size, (measured, size)


def same_stage(weights, stage, where):
    own = dict(stage.named_parameters())
    same({name: weight for name, weight in weights.items() if name in own}, stage, where)


def with_target(case, *spread):
    case, target = case
    return Training(case, *spread, target=target, steps=50)


def reached_by(case):
    training = with_target(case).train(52)
    return dict(training.model.named_parameters()), training.handle.reached


def check_stage_targets():
    """Every target: the zeros of one process, and its size in the end."""
    two = dist.get_world_size() == 2
    cases = TARGETS if two else TARGETS[:2]
    spreads = [(2,)] * len(TARGETS) if two else [(4,), (2, *sharded_stages())]
    for case, spread, (weights, reached) in zip(cases, spreads, shared_out(cases, reached_by), strict=True):
        checkpointed = case is TARGETS[0] and two
        for training in resumed(case) if checkpointed else [with_target(case, *spread).train(52)]:
            same_stage(weights, training.model, case)
            assert training.handle.reached.after == reached.after <= reached.target.asked(reached.full), case


def resumed(case):
    """Trainings that go on from a checkpoint: in the same stages, and in one process."""
    training = with_target(case, 2).train(15)
    states = [None, None]
    dist.all_gather_object(
        states, (training.model.state_dict(), training.optimizer.state_dict(), training.handle.state())
    )
    assert states[0][2] == states[1][2]
    assert states[0][2]["weights"] == [rule.name for rule in training.regularizer.rules]  # those of the whole model
    return [continued(with_target(case, 2), *states[dist.get_rank()]), continued(with_target(case), *merged(states))]


def continued(training, weights, optimizer, state):
    training.model.load_state_dict(weights)
    training.optimizer.load_state_dict(copy.deepcopy(optimizer))  # which takes over tensors
    assert training.handle.state() == state
    return training.train(37)


def merged(states):
    """The checkpoint of the whole model: that of one stage after that of the other."""
    (first, optimizer, state), (second, following, _) = states
    count = sum(len(group["params"]) for group in optimizer["param_groups"])
    shifted = [{**group, "params": [count + i for i in group["params"]]} for group in following["param_groups"]]
    moments = optimizer["state"] | {count + i: moment for i, moment in following["state"].items()}
    return first | second, {"state": moments, "param_groups": optimizer["param_groups"] + shifted}, state


def check_stage_refusals():
    """What is refused, in all processes that would wait for an answer."""
    with torch.device("meta"):
        whole = gossamer.integrated_tl1(Stream(), 0.1)
    refuses("names of the whole model", whole.on, nn.Sequential(nn.Linear(2, 2)))
    refuses("(8, 8)", whole.on, nn.ModuleDict({"part0": nn.Linear(8, 8)}))
    refuses("torch.float32", whole.on, nn.ModuleDict({"part0": nn.Linear(8, 7, dtype=torch.float32)}))
    first = nn.ModuleDict({"part0": nn.Linear(8, 7)})
    refuses("the whole model", whole.on(first).on, first)
    refuses("in all) has part1.down.bias", whole.on(first).value)  # no process has the other parts
