"""Whole trainings in every layout against one process."""

import torch
import torch.distributed as dist
from torch.distributed.tensor import init_device_mesh

import gossamer

from .models import (
    IMAGES,
    TOKENS,
    batch,
    both,
    built,
    check_zeros,
    data_parallel,
    fully_sharded,
    optimizer_of,
    own_part,
    regularizer_of,
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


def one_process_training(case):
    (kind, shape), (recipe, strength), optimizer = case
    model, (x, y) = built(kind), batch(shape)
    optimizer = optimizer_of(optimizer, model.parameters())
    regularizer = regularizer_of(model, recipe, strength)
    handle = gossamer.attach(optimizer, regularizer, compile=False)
    train(model, optimizer, x, y)
    handle.hold()
    train(model, optimizer, x, y, 1)
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    return weights, regularizer.value(), str(gossamer.measure(model, x[:1])), zero_share(regularizer)


def check_training(case, spread, reference, data=None, whole_batch=False):
    """A training over several processes gives what one process gives on the same global batch."""
    (kind, shape), (recipe, strength), name = case
    model, (x, y) = spread(built(kind)), batch(shape)
    mine = (x, y) if whole_batch else (own_part(x, data), own_part(y, data))
    optimizer = optimizer_of(name, model.parameters())
    regularizer = regularizer_of(model, recipe, strength)
    handle = gossamer.attach(optimizer, regularizer, compile=False)
    train(model, optimizer, *mine)
    model(mine[0])  # with `fully_shard`, an evaluation leaves gathered parameters behind
    handle.hold()
    train(model, optimizer, *mine, 1)
    weights, value, measured, share = reference
    where = (spread, recipe, name)
    check_zeros(share, where)
    same(weights, model, where)
    torch.testing.assert_close(regularizer.value(), value)
    assert str(gossamer.measure(model, x[:1])) == measured, where
    return model, optimizer


def check_trainings(flat):
    references = list(zip(TRAININGS, shared_out(TRAININGS, one_process_training), strict=True))
    for case, reference in references:
        check_training(case, data_parallel, reference)
        check_training(case, fully_sharded, reference)
    check_training(TRAININGS[0], root_sharded, references[0][1])
    tokens = [(case, reference) for case, reference in references if case[0] is TOKENS]
    for case, reference in tokens:
        check_training(case, lambda model: tensor_parallel(flat, model), reference, whole_batch=True)
    if dist.get_world_size() < 4:
        return
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    for case, reference in tokens:
        check_training(case, lambda model: both(mesh, model), reference, data=mesh.get_group("data"))
