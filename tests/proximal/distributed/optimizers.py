"""ZeroRedundancyOptimizer, and every regularizer over data-parallel processes."""

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import gossamer

from .models import (
    RECIPES,
    STRENGTHS,
    TOKENS,
    Tokens,
    alone,
    batch,
    built,
    check_zeros,
    data_parallel,
    fully_sharded,
    own_part,
    regularizer_of,
    same,
    shared_out,
    tensor_parallel,
    train,
    zero_share,
)


def check_zero_redundancy():
    """ZeRO: each process has a part of the optimizer's state, and all have the weights of one optimizer."""
    cases = (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}, 0.05), (torch.optim.Adam, {"lr": 1e-2}, 0.3)
    for base, options, strength in cases:
        plain, _, _ = zero_training(base, strength, **options)
        model, optimizer, handle = zero_training(ZeroRedundancyOptimizer, strength, optimizer_class=base, **options)
        same(dict(plain.named_parameters()), model, ("ZeRO", base))
        kept = gossamer.measure(model, torch.arange(8)).params_kept
        assert 0.1 < kept < 0.9, kept
        handle.hold()
        optimizer.consolidate_state_dict(0)
        saved = [optimizer.state_dict() if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(saved)
        handle.remove()
        _, other, again = zero_training(ZeroRedundancyOptimizer, strength, optimizer_class=base, **options)
        assert not again.held
        other.load_state_dict(saved[0])
        assert again.held
        assert again.steps == 4


# At these strengths about half of the groups of `Tokens` are zero after four steps of SGD.
TOKEN_STRENGTHS = {**STRENGTHS, "integrated_tl1": 0.1, "combined_group_exclusive": 0.3, "group_lasso": 0.1}

TOKEN_STRENGTHS |= {"sparse_group_lasso": 0.05, "group_transformed_l1": 0.2, "transformed_l1": 0.03, "l1": 0.05}


def recipe_training(recipe, spread=alone, share=alone, kind=torch.optim.SGD, **options):
    model, (x, y) = spread(built(Tokens)), batch(TOKENS[1])
    optimizer = kind(list(model.parameters()), lr=0.1, momentum=0.9, **options)
    regularizer = regularizer_of(model, recipe, TOKEN_STRENGTHS[recipe[0]])
    gossamer.attach(optimizer, regularizer, compile=False)
    train(model, optimizer, share(x), share(y), 4)
    return model, regularizer


def one_process_recipe(recipe):
    model, regularizer = recipe_training(recipe)
    return {name: parameter.detach() for name, parameter in model.named_parameters()}, zero_share(regularizer)


def check_every_recipe(flat):
    """Every regularizer has the zeros of one process: data-parallel, with ZeRO, and on sharded weights."""
    zero = {"kind": ZeroRedundancyOptimizer, "optimizer_class": torch.optim.SGD}
    spreads = [
        (data_parallel, own_part, {}),
        (data_parallel, own_part, zero),
        (fully_sharded, own_part, {}),
        (lambda model: tensor_parallel(flat, model), alone, {}),
    ]
    for recipe, (weights, share) in zip(RECIPES, shared_out(RECIPES, one_process_recipe), strict=True):
        if recipe[0] != "l2":
            check_zeros(share, recipe)
        for spread, part, options in spreads:
            model, _ = recipe_training(recipe, spread, part, **options)
            same(weights, model, (recipe, spread, options))


def zero_training(kind, strength, **options):
    model = DistributedDataParallel(built(Tokens))
    optimizer = kind(list(model.parameters()), **options)
    handle = gossamer.attach(optimizer, gossamer.integrated_tl1(model, strength), schedule=gossamer.warm_up(2))
    train(model, optimizer, *map(own_part, batch(TOKENS[1])), 4)
    assert handle.steps == 4
    return model, optimizer, handle
