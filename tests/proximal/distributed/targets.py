"""Targets in every layout: the zeros of one process, and its size in the end."""

from functools import partial
from itertools import product

import torch
import torch.distributed as dist

import gossamer
from gossamer import Target

from .models import (
    IMAGES,
    TOKENS,
    Net,
    Tokens,
    alone,
    batch,
    built,
    data_parallel,
    fully_sharded,
    optimizer_of,
    own_part,
    refuses,
    same,
    shared_out,
    train,
    zero_of,
)
from .trainings import spreads_of

DENSE = (TOKENS, "unit_tl1", Target(dense_params=0.458), "SGD")

FILE = (TOKENS, "integrated_tl1", Target(bytes=3000), "SGD")

# With two processes only: the other kinds of targets, convolutions, adaptive optimizers.
FURTHER = [
    ((IMAGES, "integrated_tl1", Target(dense_flops=0.585), "SGD"), (fully_sharded, own_part)),
    ((IMAGES, "integrated_tl1", Target(flops=0.3), "Adam"), (fully_sharded, own_part)),
    ((IMAGES, "unit_tl1", Target(params=0.4), "SGD"), (data_parallel, own_part)),
    ((IMAGES, "unit_tl1", Target(dense_params=0.525), "Adam"), (data_parallel, own_part, zero_of)),
]


def with_target(case, spread=alone, share=alone, optimizer_of=optimizer_of):
    (kind, shape), recipe, target, name = case
    model, (x, y) = built(kind), batch(shape)
    regularizer = getattr(gossamer, recipe)(model, example=x)
    model = spread(model)
    optimizer = optimizer_of(name, model.parameters())
    handle = gossamer.attach(optimizer, regularizer, target=target, steps=50)
    return model, optimizer, handle, (share(x), share(y))


def target_training(case, *spread):
    model, optimizer, handle, data = with_target(case, *spread)
    train(model, optimizer, *data, 52)
    assert handle.held
    return dict(model.named_parameters()), handle.reached, model


def check_targets(flat):
    """Every target, data-parallel, with ZeRO and on sharded weights."""
    _, sharded, tensor, *both = spreads_of(DENSE, flat)
    if dist.get_world_size() == 2:
        pairs = [*product((DENSE, FILE), (sharded, tensor)), *FURTHER]
    else:
        pairs = [(DENSE, *both), (FILE, tensor)]
    cases = list(dict.fromkeys(case for case, _ in pairs))
    one_process = dict(zip(cases, shared_out(cases, lambda case: target_training(case)[:2]), strict=True))
    for case, spread in pairs:
        weights, reached = one_process[case]
        _, other, model = target_training(case, *spread)
        same(weights, model, (case, spread))
        assert other.after == reached.after <= reached.target.asked(reached.full), (case, spread, other, reached)


def check_resumed_zero():
    """A training with ZeRO, units and a target goes on from its checkpoint as if it had not been interrupted."""
    case = IMAGES, "unit_tl1", Target(params=0.4), "Adam"
    spread = data_parallel, own_part, zero_of
    expected, *_ = target_training(case, *spread)
    model, optimizer, handle, data = with_target(case, *spread)
    train(model, optimizer, *data, 30)
    optimizer.consolidate_state_dict(0)
    saved = [optimizer.state_dict() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(saved)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    handle.remove()
    model, optimizer, handle, data = with_target(case, *spread)
    model.load_state_dict(state)
    optimizer.load_state_dict(saved[0])
    assert handle.steps == 30
    train(model, optimizer, *data, 22)
    same(expected, model, "resumed")


def check_unknown_structure():
    """The structure of a model is copied before it is sharded; afterwards single weights can be counted."""
    model, (x, _) = fully_sharded(built(Net)), batch(IMAGES[1])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attach = partial(gossamer.attach, optimizer, steps=100)
    for target in (Target(dense_params=0.5), Target(dense_flops=0.5), Target(bytes=1000)):
        refuses("before the model is sharded", partial(attach, gossamer.l1(model, example=x), target=target))
    refuses("example=x", partial(attach, gossamer.l1(model), target=Target(flops=0.5)))
    attach(gossamer.l1(model, example=x), target=Target(flops=0.5)).remove()


class Branching(Tokens):
    """Cannot be exported."""

    def forward(self, x):
        return super().forward(x) if x.sum() > 0 else super().forward(x + 1)


def check_failure():
    """What fails in the first process, which counts, fails in all of them."""
    model, (x, _) = built(Branching), batch(TOKENS[1])
    regularizer = gossamer.l1(model, example=x)
    optimizer = torch.optim.SGD(fully_sharded(model).parameters(), lr=0.1)
    attach = partial(gossamer.attach, optimizer, regularizer, steps=100)
    first = dist.get_rank() == 0
    refuses("torch.export" if first else "In the first process", partial(attach, target=Target(dense_params=0.5)))
    assert attach(target=Target(params=0.5)).strength == 0
