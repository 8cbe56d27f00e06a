"""What a proximal step sends."""

from contextlib import contextmanager
from functools import partial
from itertools import product
from operator import mul

import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.utils._python_dispatch import TorchDispatchMode

import gossamer
from gossamer.targets import Size

from .models import POINTS, TOKENS, Tokens, batch, built, fully_sharded, optimizer_of, regularizer_of, zero_of
from .stages import Stream, Training

# Recipe and optimizer -> numbers that a step sends for each group that is split, and calls of `all_reduce` for each
# weight; the table of docs/scaling.md. The exclusive step iterates: its numbers depend on the weights, see below.
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
        model = fully_sharded(built(Tokens))
        options = {} if recipe == "transformed_l1" else {"groups": groups}
        sent = sent_by(model, optimizer_of(name, model.parameters()), regularizer_of(model, (recipe, options), 0.1))
        assert sum(sent) == 8 * numbers * sum(split[groups]), (recipe, name, groups, sum(sent) / 8 / sum(split[groups]))
        assert len(sent) == calls * len(split[groups]), (recipe, name, len(sent) / len(split[groups]))


def check_bytes_of_exclusive():
    """Combined sparsity sends what a group lasso does, one more for each group, and two in each iteration."""
    recipe = ("combined_group_exclusive", {"groups": "outputs"})
    for name in ("SGD", "Adam"):
        model = fully_sharded(built(Tokens))
        sent = sent_by(model, optimizer_of(name, model.parameters()), regularizer_of(model, recipe, 0.1))
        numbers, calls = SENT["integrated_tl1", name]
        iterations = len(sent) - calls - 1  # one weight has split groups, eight of them
        assert 1 <= iterations < 10, (name, sent)
        assert sum(sent) == 8 * 8 * (numbers + 1 + 2 * iterations), (name, sent)


def check_bytes_of_units():
    """A proximal step on units sends the numbers of its penalty, and one more, for each unit."""
    for name, recipe in product(("SGD", "Adam"), ("group_lasso", "group_transformed_l1")):
        model, regularizer = on_units(recipe)
        fully_sharded(model)
        sent = sent_by(model, optimizer_of(name, model.parameters()), regularizer)
        numbers, calls = SENT["integrated_tl1" if recipe == "group_lasso" else recipe, name]
        units = regularizer.units
        assert sum(sent) == 8 * (numbers + 1) * units.count, (recipe, name, sum(sent) / 8 / units.count)
        assert len(sent) == (calls + 1) * len(units.buckets), (recipe, name, len(sent) / len(units.buckets))


def check_bytes_of_kept_norms():
    """A weight that keeps its norms sends two numbers for each block of its rows, besides what its units send."""
    model, (x, y) = built(POINTS[0]), batch(POINTS[1])
    regularizer = gossamer.group_lasso(model, 0.1, groups="units", example=x)
    fully_sharded(model)
    sent = sent_by(model, optimizer_of("SGD", model.parameters()), regularizer, x, y)
    units = regularizer.units
    blocks = sum(int(kept.blocks.max()) + 1 for kept in units.kept_norms)
    assert blocks > 0
    assert sum(sent) == 8 * (2 * units.count + 2 * blocks), (sent, units.count, blocks)


def check_bytes_of_stages():
    """In a pipeline, only units with members in several stages send numbers, and four for each set of them."""
    stages = dist.get_world_size()
    across = 7  # the residual stream
    for name, recipe in product(("SGD", "Adam"), ("integrated_tl1", "group_lasso")):
        groups = {"example": True, "groups": "units"} if recipe == "group_lasso" else {}
        training = Training((Stream, (recipe, groups), 0.1, name), stages)
        for group in training.optimizer.param_groups:
            group["lr"] = 0.1
        training.forward_and_backward()
        sent = bytes_of(training.optimizer)
        numbers, calls = SENT["integrated_tl1", name] if groups else (-1, -1)
        assert sum(sent) == 8 * ((numbers + 1) * across + (4 if groups else 0)), (recipe, name, sent)
        assert len(sent) == calls + 1 + bool(groups), (recipe, name, sent)


def check_bytes_of_zero():
    """With ZeRO, units cost two numbers for each weight tensor, and the metric of an adaptive optimizer."""
    for name in ("SGD", "Adam"):
        model, regularizer = on_units("group_lasso")
        alone = sent_by(model, zero_of(name, model.parameters()), None)
        sent = sent_by(model, zero_of(name, model.parameters()), regularizer)
        weights = [rule.weight.parameter.numel() for rule in regularizer.rules]
        assert sum(sent) - sum(alone) == 16 * len(weights) + (8 * sum(weights) if name == "Adam" else 0)
        assert len(sent) - len(alone) == 1 + (len(weights) if name == "Adam" else 0)


def check_bytes_of_targets():
    """To estimate `params`, a number for each weight; for what `shrink` leaves, a bit for each, and whole biases."""
    model, (x, _) = built(Tokens), batch(TOKENS[1])
    regularizer = gossamer.l1(model, example=x)
    fully_sharded(model)
    sent = []
    with counting(sent):
        Size(gossamer.Target(params=0.5), regularizer).estimate()
    assert sent == [8] * len(regularizer.rules), sent
    size = Size(gossamer.Target(dense_params=0.5), regularizer)
    with _Gathered() as seen:
        size.exact()
    rows = [-(-len(weight) // dist.get_world_size()) for weight in model.parameters()]  # padded to equal parts
    sizes = [8 if weight.dim() == 1 else -(-weight.shape[1] // 8) for weight in model.parameters()]
    assert sum(seen.sent) == sum(map(mul, rows, sizes)), seen.sent


class _Gathered(TorchDispatchMode):
    """The bytes that this process gives to each call that gathers."""

    def __init__(self):
        super().__init__()
        self.sent = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if DTensor in types:
            return NotImplemented  # its operations on plain tensors come here again
        if "all_gather" in func.name():
            self.sent.append(args[0].numel() * args[0].element_size())
        return func(*args, **(kwargs or {}))


def on_units(recipe):
    model, (x, _) = built(Tokens), batch(TOKENS[1])
    return model, getattr(gossamer, recipe)(model, 0.1, groups="units", example=x)


def sent_by(model, optimizer, regularizer, x=None, y=None):
    """The bytes of each call that sends something during one step of an optimizer."""
    if regularizer is not None:
        gossamer.attach(optimizer, regularizer)
    if x is None:
        x, y = batch(TOKENS[1])
    nn.functional.cross_entropy(model(x), y).backward()
    return bytes_of(optimizer)


def bytes_of(optimizer):
    sent = []
    with CommDebugMode() as seen, counting(sent):
        optimizer.step()
    assert seen.get_total_counts() == len(sent)
    return sent


@contextmanager
def counting(sent):
    """Note the bytes of each call."""
    originals = {name: getattr(dist, name) for name in ("all_reduce", "broadcast")}

    def counted(original, tensor, *args, **kwargs):
        sent.append(tensor.numel() * tensor.element_size())
        return original(tensor, *args, **kwargs)

    for name, original in originals.items():
        setattr(dist, name, partial(counted, original))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(dist, name, original)
