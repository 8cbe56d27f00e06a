"""Small models, how they are spread over processes, and comparisons with one process."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import gossamer

GROUPED = ("integrated_tl1", "combined_group_exclusive", "group_lasso", "sparse_group_lasso", "group_transformed_l1")

RECIPES = [(name, {"groups": groups}) for name in GROUPED for groups in ("outputs", "inputs", "taps")]

RECIPES += [("transformed_l1", {}), ("l1", {}), ("l2", {}), ("combined_group_exclusive", {"exact": False})]

# At these strengths about half of the groups of `Layers` are zero after one step of SGD.
STRENGTHS = {
    "integrated_tl1": 0.65,
    "combined_group_exclusive": 1.3,
    "group_lasso": 0.35,
    "sparse_group_lasso": 0.2,
    "group_transformed_l1": 0.5,
    "transformed_l1": 0.08,
    "l1": 0.16,
    "l2": 1.0,
}


class Net(nn.Module):
    """Convolutions, grouped ones too, and linear layers, called in another order than defined; sizes that 2 and 4 do
    not divide."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(9, 3)
        self.conv = nn.Conv2d(2, 6, 3)
        self.grouped = nn.Conv2d(6, 6, 3, groups=3)
        self.hidden = nn.Linear(24, 9)

    def forward(self, x):
        return self.last(self.hidden(self.grouped(self.conv(x).relu()).relu().flatten(1)).relu())


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.up, self.down = nn.Embedding(12, 8), nn.Linear(8, 16), nn.Linear(16, 3)

    def forward(self, x):
        return self.down(self.up(self.embed(x)).relu())


def full(parameter):
    parameter = parameter.detach()
    return parameter.full_tensor() if isinstance(parameter, DTensor) else parameter


def built(kind):
    torch.manual_seed(0)
    return kind()


def optimizer_of(name, parameters):
    options = {"lr": 0.1, "momentum": 0.9} if name == "SGD" else {"lr": 0.02}
    return getattr(torch.optim, name)(parameters, **options)


def zero_of(name, parameters):
    """The same optimizer, its state spread over the processes."""
    like = optimizer_of(name, [torch.zeros(1)])
    return ZeroRedundancyOptimizer(list(parameters), optimizer_class=type(like), **like.defaults)


def train(model, optimizer, x, y, steps=3):
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def regularizer_of(model, recipe, strength):
    name, options = recipe
    return getattr(gossamer, name)(model, strength, **options)


def same(expected, model, where):
    for (name, one), other in zip(expected.items(), model.parameters(), strict=True):
        assert torch.equal(one == 0, full(other) == 0), f"{where}: other zeros in {name}"
        torch.testing.assert_close(full(other), one, msg=lambda text, name=name: f"{where}, {name}: {text}")


def check_zeros(share, where):
    assert 0.1 <= share <= 0.9, f"{where}: {share:.0%} of the groups are zero"


def zero_share(regularizer):
    """Share of the groups, or of the weights where there are no groups, that are zero."""
    zero = total = 0
    for rule in regularizer.rules:
        groups = next((term.groups for term in rule.terms if term.groups), None)
        weight, layout = rule.weight.parameter.detach(), rule.weight.layout
        rows = weight.reshape(-1, 1) if groups is None else layout.as_groups(weight, groups)
        zero, total = zero + int((rows == 0).all(1).sum()), total + len(rows)
    return zero / total


def shared_out(cases, work):
    """The results of all cases, each computed by one process."""
    rank, world = dist.get_rank(), dist.get_world_size()
    parts = [None] * world
    dist.all_gather_object(parts, [work(case) for case in cases[rank::world]])
    return [parts[index % world][index // world] for index in range(len(cases))]


def refuses(words, call, *args):
    try:
        call(*args)
    except gossamer.GossamerError as error:
        said = str(error)
    else:
        said = "nothing"
    assert words in said, said


IMAGES = (Net, (8, 2, 6, 6))

TOKENS = (Tokens, (8,))


def batch(shape):
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(shape, generator=generator) if len(shape) > 1 else torch.arange(8)
    return inputs, torch.randint(0, 3, (8,), generator=generator)


def own_part(tensor, processes=None):
    return tensor.chunk(dist.get_world_size(processes))[dist.get_rank(processes)]


class Normed(nn.Module):
    """Units behind a normalisation, whose norms are kept, and in front of one."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second, self.last = (
            nn.Linear(8, 9),
            nn.LayerNorm(9),
            nn.Linear(9, 7),
            nn.Linear(7, 3),
        )

    def forward(self, x):
        return self.last(self.second(self.norm(self.first(x)).relu()).relu())


POINTS = (Normed, (8, 8))


def alone(model):
    return model


def data_parallel(model):
    return DistributedDataParallel(model)


def fully_sharded(model):
    for layer in model.children():
        fully_shard(layer)
    return fully_shard(model)


def root_sharded(model):
    return fully_shard(model)  # the parameters of all layers stay gathered between forward and backward pass


def tensor_parallel(mesh, model):
    styles = {
        "embed": RowwiseParallel(input_layouts=Replicate()),
        "up": ColwiseParallel(),
        "down": RowwiseParallel(),
    }
    return parallelize_module(model, mesh, styles)


def both(mesh, model):
    tensor_parallel(mesh["tensor"], model)
    for layer in model.children():
        fully_shard(layer, mesh=mesh["data"])
    return fully_shard(model, mesh=mesh["data"])
