"""Whole trainings in every layout against one process."""

import torch
import torch.distributed as dist
from torch.distributed.tensor import init_device_mesh

import gossamer

from .models import (
    IMAGES,
    TOKENS,
    alone,
    batch,
    both,
    built,
    check_zeros,
    data_parallel,
    fully_sharded,
    optimizer_of,
    own_part,
    root_sharded,
    same,
    shared_out,
    tensor_parallel,
    train,
    zero_share,
)

ITL, CGES = ("integrated_tl1", {"groups": "outputs"}), ("combined_group_exclusive", {"groups": "inputs"})

GROUP_TL1 = ("group_transformed_l1", {"groups": "taps"})

TRAININGS = [
    (IMAGES, (ITL, 0.07), "SGD"),
    (IMAGES, (CGES, 0.18), "SGD"),
    (IMAGES, (GROUP_TL1, 0.016), "Adam"),
    (TOKENS, (CGES, 0.28), "SGD"),
    (TOKENS, (GROUP_TL1, 0.19), "SGD"),
    (TOKENS, (ITL, 0.3), "Adam"),
]


def trained(case, spread=alone, share=alone, optimizer_of=optimizer_of):
    """Some steps, an evaluation, the zeros held, one more step: the model, its regularizer and the value before.

    Units are found before the model is spread, other groups after.
    """
    (kind, shape), ((recipe, options), strength), name = case
    model, (x, y) = built(kind), batch(shape)
    on_units = recipe == "unit_tl1" or options.get("groups") == "units"
    regularizer = getattr(gossamer, recipe)(model, strength, example=x, **options) if on_units else None
    model = spread(model)
    optimizer = optimizer_of(name, model.parameters())
    regularizer = regularizer or getattr(gossamer, recipe)(model, strength, **options)
    handle = gossamer.attach(optimizer, regularizer, compile=False)
    train(model, optimizer, share(x), share(y))
    model(share(x))  # with `fully_shard`, an evaluation leaves gathered parameters behind
    value = regularizer.value()
    handle.hold()
    train(model, optimizer, share(x), share(y), 1)
    return model, regularizer, value


def measured(model, case):
    return str(gossamer.measure(model, batch(case[0][1])[0][:1]))


def one_process_training(case):
    model, regularizer, value = trained(case)
    return dict(model.named_parameters()), value, measured(model, case), zero_share(regularizer)


def check_training(case, reference, *spread):
    """A training over several processes gives what one process gives on the same global batch."""
    model, _, value = trained(case, *spread)
    weights, expected, size, share = reference
    where = (case, spread)
    check_zeros(share, where)
    same(weights, model, where)
    torch.testing.assert_close(value, expected)
    assert measured(model, case) == size, where


def spreads_of(case, flat):
    """The layouts that a case is trained in, with the part of the batch that a process gets."""
    yield data_parallel, own_part
    yield fully_sharded, own_part
    if case[0] is TOKENS:
        yield lambda model: tensor_parallel(flat, model), alone
        if dist.get_world_size() == 4:
            mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
            data = mesh.get_group("data")
            yield lambda model: both(mesh, model), lambda part: own_part(part, data)


def check_trainings(flat):
    references = list(zip(TRAININGS, shared_out(TRAININGS, one_process_training), strict=True))
    for case, reference in references:
        for spread in spreads_of(case, flat):
            check_training(case, reference, *spread)
    check_training(*references[0], root_sharded, own_part)
