"""One proximal step on every kind of weight, in every placement."""

from itertools import product

import torch
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor

import gossamer
from gossamer.layers import gathered_mask, local_part

from .models import (
    RECIPES,
    STRENGTHS,
    built,
    check_zeros,
    full,
    optimizer_of,
    regularizer_of,
    same,
    shared_out,
    zero_share,
)


class Layers(nn.Module):
    """Weights with gates, blocks, taps, rows for tokens; never called."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3)
        self.grouped = nn.Conv2d(6, 9, 2, groups=3)
        self.transposed = nn.ConvTranspose1d(4, 6, 2, groups=2)
        self.linear = nn.Linear(7, 5)
        self.embedding = nn.Embedding(5, 6)
        self.lstm = nn.LSTM(3, 3)
        self.attention = nn.MultiheadAttention(4, 2)


def scattered():
    """Weights and gradients with groups of very different sizes, so that every strength removes some of them."""
    model = built(Layers)
    gradients = {}
    for name, parameter in model.named_parameters():
        with torch.no_grad():
            for dim, size in enumerate(parameter.shape):
                shape = [size if each == dim else 1 for each in range(parameter.dim())]
                parameter.mul_(torch.randn(size).exp().view(shape))
        gradients[name] = torch.randn(parameter.shape) * 0.01
    return model, gradients


def placed(mesh, placements):
    model, gradients = scattered()
    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is not None and parameter.dim() > 1:
                sharded = distribute_tensor(parameter.detach(), mesh, placements, src_data_rank=None)
                module._parameters[name] = nn.Parameter(sharded)
    for name, parameter in model.named_parameters():
        if isinstance(parameter, DTensor):
            gradients[name] = distribute_tensor(gradients[name], mesh, placements, src_data_rank=None)
    return model, gradients


def one_step(model, gradients, recipe, optimizer, strength):
    regularizer = regularizer_of(model, recipe, strength)
    optimizer = optimizer_of(optimizer, model.parameters())
    gossamer.attach(optimizer, regularizer, compile=False)
    for name, parameter in model.named_parameters():
        parameter.grad = gradients[name]
    optimizer.step()
    return regularizer


def check_placements(meshes):
    """One proximal step in every placement gives the zeros of one step on whole weights, and the same value."""
    recipes = list(product(RECIPES, (("SGD", 1.0), ("Adam", 0.36))))
    # Adam's step of this penalty takes 68 sums for each weight, which is slow between processes: one grouping.
    slow = [("group_transformed_l1", {"groups": groups}) for groups in ("outputs", "taps")]
    recipes = [case for case in recipes if case[1][0] == "SGD" or case[0] not in slow]
    references = shared_out(recipes, one_process_step)
    for number, case in enumerate(zip(recipes, references, strict=True)):
        (recipe, (optimizer, factor)), (weights, value, share) = case
        strength = factor * STRENGTHS[recipe[0]]
        if recipe[0] != "l2":
            check_zeros(share, (recipe, optimizer))
        # Four processes on few cores are slow: all meshes for two recipes, one in turn for the others.
        every = len(meshes) == 2 or (optimizer == "SGD" and recipe[0] in ("integrated_tl1", "combined_group_exclusive"))
        for mesh, placements in meshes if every else [meshes[number % len(meshes)]]:
            model, gradients = placed(mesh, placements)
            regularizer = one_step(model, gradients, recipe, optimizer, strength)
            same(weights, model, (recipe, optimizer, placements))
            torch.testing.assert_close(regularizer.value(), value)


def check_masks(meshes):
    """Masks that are gathered as bits are those of whole weights."""
    for mesh, placements in meshes:
        for name, weight in placed(mesh, placements)[0].named_parameters():
            mask = gathered_mask(local_part(weight.detach()) > 0, weight)
            assert torch.equal(mask, full(weight) > 0), (name, placements)


def one_process_step(case):
    recipe, (optimizer, factor) = case
    model, gradients = scattered()
    regularizer = one_step(model, gradients, recipe, optimizer, factor * STRENGTHS[recipe[0]])
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    return weights, regularizer.value(), zero_share(regularizer)
