"""What a proximal step sends."""

from contextlib import contextmanager
from itertools import product

import torch.distributed as dist
from torch import nn
from torch.distributed.tensor.debug import CommDebugMode

import gossamer

from .models import TOKENS, Tokens, batch, built, fully_sharded, optimizer_of, regularizer_of

# Recipe and optimizer -> numbers that a step sends for each group that is split, and calls of `all_reduce` for each
# weight; the table of docs/scaling.md. The exclusive step iterates: its numbers depend on the weights.
SENT = {
    ("integrated_tl1", "SGD"): (1, 1),
    ("integrated_tl1", "Adam"): (27, 15),
    ("group_transformed_l1", "SGD"): (1, 1),
    ("group_transformed_l1", "Adam"): (194, 68),
    ("transformed_l1", "Adam"): (0, 0),
}


def check_bytes():
    """A proximal step sends 8 bytes for each number of each group that is split, and nothing else."""
    # The embedding has a row for each token: its groups of inputs are whole, those of outputs split over processes.
    split = {"outputs": [8], "inputs": [8, 16]}
    for ((recipe, name), (numbers, calls)), groups in product(SENT.items(), split):
        model, (x, y) = fully_sharded(built(Tokens)), batch(TOKENS[1])
        optimizer = optimizer_of(name, model.parameters())
        options = {} if recipe == "transformed_l1" else {"groups": groups}
        gossamer.attach(optimizer, regularizer_of(model, (recipe, options), 0.1))
        nn.functional.cross_entropy(model(x), y).backward()
        sent = []
        with CommDebugMode() as seen, counting(sent):
            optimizer.step()
        assert sum(sent) == 8 * numbers * sum(split[groups]), (recipe, name, groups, sum(sent) / 8 / sum(split[groups]))
        assert len(sent) == calls * len(split[groups]), (recipe, name, len(sent) / len(split[groups]))
        assert seen.get_total_counts() == len(sent)


def check_bytes_of_units():
    """A proximal step on units sends the numbers of its penalty, and one more, for each unit."""
    for name, recipe in product(("SGD", "Adam"), ("group_lasso", "group_transformed_l1")):
        model, (x, y) = built(Tokens), batch(TOKENS[1])
        regularizer = getattr(gossamer, recipe)(model, 0.1, groups="units", example=x)
        fully_sharded(model)
        optimizer = optimizer_of(name, model.parameters())
        gossamer.attach(optimizer, regularizer)
        nn.functional.cross_entropy(model(x), y).backward()
        sent = []
        with CommDebugMode() as seen, counting(sent):
            optimizer.step()
        numbers, calls = SENT["integrated_tl1" if recipe == "group_lasso" else recipe, name]
        units = regularizer.units
        assert sum(sent) == 8 * (numbers + 1) * units.count, (recipe, name, sum(sent) / 8 / units.count)
        assert len(sent) == (calls + 1) * len(units.buckets), (recipe, name, len(sent) / len(units.buckets))
        assert seen.get_total_counts() == len(sent)


@contextmanager
def counting(sent):
    original = dist.all_reduce

    def all_reduce(tensor, *args, **kwargs):
        sent.append(tensor.numel() * tensor.element_size())
        return original(tensor, *args, **kwargs)

    dist.all_reduce = all_reduce
    try:
        yield
    finally:
        dist.all_reduce = original
