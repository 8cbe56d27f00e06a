"""Units and targets on weights that several processes share."""

from dataclasses import replace
from functools import partial

import torch
import torch.distributed as dist

import gossamer

from .models import (
    IMAGES,
    POINTS,
    TOKENS,
    Net,
    alone,
    batch,
    built,
    check_zeros,
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
from .trainings import spreads_of, trained

UNIT_TRAININGS = [
    (IMAGES, (("unit_tl1", {}), 0.03), "SGD"),
    (IMAGES, (("sparse_group_lasso", {"groups": "units"}), 0.02), "Adam"),
    (TOKENS, (("unit_tl1", {}), 0.18), "Adam"),
    (TOKENS, (("combined_group_exclusive", {"groups": "units"}), 0.35), "SGD"),
    (TOKENS, (("group_lasso", {"groups": "units"}), 0.1), "SGD"),
    (POINTS, (("integrated_tl1", {"groups": "units"}), 0.18), "SGD"),
]


def one_process_units(case):
    model, regularizer, value = trained(case)
    return dict(model.named_parameters()), value, dead_share(regularizer)


def dead_share(regularizer):
    return regularizer.units.dead().double().mean().item()


def check_units(flat):
    """Units of weights in several processes become zero together, as in one process."""
    for case, (weights, value, dead) in zip(UNIT_TRAININGS, shared_out(UNIT_TRAININGS, one_process_units), strict=True):
        check_zeros(dead, case)
        for spread in (*spreads_of(case, flat), (data_parallel, own_part, zero_of)):
            model, regularizer, other = trained(case, *spread)
            same(weights, model, (case, spread))
            torch.testing.assert_close(other, value)
            assert dead_share(regularizer) == dead


def with_target(recipe, target, name, spread=alone, share=alone, optimizer_of=optimizer_of, example=True):
    model, (x, y) = built(Net), batch(IMAGES[1])
    regularizer = getattr(gossamer, recipe)(model, example=x)
    if not example:  # non-zeros are counted, as they are on sharded weights
        regularizer = replace(regularizer, example=None)
    model = spread(model)
    optimizer = optimizer_of(name, model.parameters())
    handle = gossamer.attach(optimizer, regularizer, target=target, steps=50)
    return model, optimizer, handle, (share(x), share(y))


def target_training(*case, **options):
    model, optimizer, handle, data = with_target(*case, **options)
    train(model, optimizer, *data, 52)
    assert handle.held
    return model, handle.reached


def check_resumed_zero():
    """A training with ZeRO, units and a target goes on from its checkpoint as if it had not been interrupted."""
    case = "unit_tl1", gossamer.Target(params=0.4), "Adam", data_parallel, own_part, zero_of
    expected, _ = target_training(*case)
    model, optimizer, handle, data = with_target(*case)
    train(model, optimizer, *data, 30)
    optimizer.consolidate_state_dict(0)
    saved = [optimizer.state_dict() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(saved)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    handle.remove()
    model, optimizer, handle, data = with_target(*case)
    model.load_state_dict(state)
    optimizer.load_state_dict(saved[0])
    assert handle.steps == 30
    train(model, optimizer, *data, 22)
    same(dict(expected.named_parameters()), model, "resumed")


def check_targets():
    """Targets, data-parallel, with ZeRO and on sharded weights: the zeros of one process, the size asked for."""
    units, dense, size = gossamer.Target(params=0.4), gossamer.Target(dense_params=0.6), gossamer.Target(bytes=4000)
    cases = [
        ("unit_tl1", units, "SGD", (data_parallel, own_part), (), True),
        ("unit_tl1", units, "SGD", (fully_sharded, own_part), (), False),
        ("unit_tl1", dense, "Adam", (data_parallel, own_part, zero_of), (), True),
        ("integrated_tl1", gossamer.Target(params=0.3), "Adam", (fully_sharded, own_part), (), False),
        # The size of a file depends on the last digits of the weights.
        ("integrated_tl1", size, "SGD", (data_parallel, own_part, zero_of), (data_parallel, own_part), True),
    ]
    for recipe, target, name, spread, like, example in cases if dist.get_world_size() == 2 else cases[:3]:
        expected, one = target_training(recipe, target, name, *like, example=example)
        model, other = target_training(recipe, target, name, *spread)
        same(dict(expected.named_parameters()), model, (recipe, spread))
        assert other.after == one.after
        assert 0 <= target.value * one.full - one.after <= 1 or example
    model, (x, _) = built(Net), batch(IMAGES[1])
    regularizer = gossamer.unit_tl1(model, example=x)
    optimizer = torch.optim.SGD(fully_sharded(model).parameters(), lr=0.1)
    for target in (gossamer.Target(dense_params=0.5), gossamer.Target(bytes=1000)):
        attach = partial(gossamer.attach, optimizer, regularizer, target=target, steps=100)
        refuses("Target(params=...)", attach)
