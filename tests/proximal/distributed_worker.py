"""Run by torchrun from test_distributed.py: every way to spread a model over processes against one process."""

import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise, product
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint import load as load_checkpoint
from torch.distributed.checkpoint import save as save_checkpoint
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor, init_device_mesh
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.distributed.tensor.placement_types import _StridedShard
from torch.nn.parallel import DistributedDataParallel

import gossamer
from gossamer.penalties import L1MinusL2, Penalty
from gossamer.regularizers import Regularizer, Rule, Term

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


# -- one step on every kind of weight, in every placement


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


def zero_share(regularizer):
    """Share of the groups, or of the weights where there are no groups, that are zero."""
    zero = total = 0
    for rule in regularizer.rules:
        groups = next((term.groups for term in rule.terms if term.groups), None)
        weight, layout = rule.weight.parameter.detach(), rule.weight.layout
        rows = weight.reshape(-1, 1) if groups is None else layout.as_groups(weight, groups)
        zero, total = zero + int((rows == 0).all(1).sum()), total + len(rows)
    return zero / total


def check_placements(meshes):
    """One proximal step in every placement gives the zeros of one step on whole weights, and the same value."""
    recipes = list(product(RECIPES, (("SGD", 1.0), ("Adam", 0.36))))
    if dist.get_world_size() == 4:  # on few cores its 68 sums for each weight are slow: one grouping
        slow = [("group_transformed_l1", {"groups": groups}) for groups in ("outputs", "taps")]
        recipes = [case for case in recipes if case[1][0] == "SGD" or case[0] not in slow]
    references = shared_out(recipes, one_process_step)
    for (recipe, (optimizer, factor)), (weights, value, share) in zip(recipes, references, strict=True):
        strength = factor * STRENGTHS[recipe[0]]
        if recipe[0] != "l2":
            check_zeros(share, (recipe, optimizer))
        # Four processes on few cores are slow: all meshes for two recipes only.
        every = len(meshes) == 2 or (optimizer == "SGD" and recipe[0] in ("integrated_tl1", "combined_group_exclusive"))
        for mesh, placements in meshes if every else meshes[:1]:
            model, gradients = placed(mesh, placements)
            regularizer = one_step(model, gradients, recipe, optimizer, strength)
            same(weights, model, (recipe, optimizer, placements))
            torch.testing.assert_close(regularizer.value(), value)


def one_process_step(case):
    recipe, (optimizer, factor) = case
    model, gradients = scattered()
    regularizer = one_step(model, gradients, recipe, optimizer, factor * STRENGTHS[recipe[0]])
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    return weights, regularizer.value(), zero_share(regularizer)


def shared_out(cases, work):
    """The results of all cases, each computed by one process."""
    rank, world = dist.get_rank(), dist.get_world_size()
    parts = [None] * world
    dist.all_gather_object(parts, [work(case) for case in cases[rank::world]])
    return [parts[index % world][index // world] for index in range(len(cases))]


def check_refusals(mesh):
    weight = nn.Linear(4, 6)
    weight.weight = nn.Parameter(distribute_tensor(weight.weight.detach(), mesh, [Shard(1)]))
    rule = gossamer.group_lasso(weight, 1.0).rules[0]
    refuses("L1MinusL2 has no proximal step", attach_rule, rule, L1MinusL2(), weight)
    weight.weight = nn.Parameter(DTensor.from_local(torch.randn(6, 4), mesh, [Partial()]))
    refuses("Redistribute the weight", attach_rule, rule, L1MinusL2(), weight)
    model = built(Tokens)
    zero = ZeroRedundancyOptimizer(list(model.parameters()), optimizer_class=torch.optim.SGD, lr=0.1)
    on_units, target = gossamer.unit_tl1(model, 1.0, example=torch.arange(8)), gossamer.Target(params=0.5)
    refuses("A regularizer on units needs all weights", gossamer.attach, zero, on_units)
    plain = gossamer.l1(model)
    refuses("`target` needs all weights", lambda: gossamer.attach(zero, plain, target=target, steps=100))
    sharded = fully_sharded(built(Tokens))
    refuses("before", lambda: gossamer.unit_tl1(sharded, 1.0, example=torch.arange(8)))
    for original in (False, True):
        flat = FullyShardedDataParallel(built(Tokens), use_orig_params=original, device_id=torch.device("cpu"))
        refuses("FullyShardedDataParallel", gossamer.l1, flat, 1e-3)
        refuses("FullyShardedDataParallel", gossamer.measure, flat, torch.zeros(1, 2, dtype=torch.int64))


def attach_rule(rule: Rule, penalty: Penalty, model: nn.Module) -> None:
    own = Regularizer(1.0, (Rule(rule.weight, (Term(penalty, 1.0, "outputs"),)),))
    gossamer.attach(torch.optim.SGD(model.parameters(), lr=0.1), own)


def refuses(words, call, *args):
    try:
        call(*args)
    except gossamer.GossamerError as error:
        said = str(error)
    else:
        said = "nothing"
    assert words in said, said


# -- whole trainings

IMAGES = (Net, (8, 2, 6, 6))
TOKENS = (Tokens, (8,))
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


def batch(shape):
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(shape, generator=generator) if len(shape) > 1 else torch.arange(8)
    return inputs, torch.randint(0, 3, (8,), generator=generator)


def own_part(tensor, processes=None):
    return tensor.chunk(dist.get_world_size(processes))[dist.get_rank(processes)]


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


# -- units and targets


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
UNIT_TRAININGS = [
    (IMAGES, (("unit_tl1", {}), 0.03), "SGD"),
    (IMAGES, (("sparse_group_lasso", {"groups": "units"}), 0.02), "Adam"),
    (TOKENS, (("unit_tl1", {}), 0.18), "Adam"),
    (TOKENS, (("combined_group_exclusive", {"groups": "units"}), 0.35), "SGD"),
    (TOKENS, (("group_lasso", {"groups": "units"}), 0.1), "SGD"),
    (POINTS, (("integrated_tl1", {"groups": "units"}), 0.18), "SGD"),
]


def alone(model):
    return model


def unit_training(case, spread=alone, share=alone):
    """Units are found before the model is spread. Some steps, the zeros held, one more step."""
    (kind, shape), ((recipe, options), strength), name = case
    model, (x, y) = built(kind), batch(shape)
    regularizer = getattr(gossamer, recipe)(model, strength, example=x, **options)
    model = spread(model)
    optimizer = optimizer_of(name, model.parameters())
    handle = gossamer.attach(optimizer, regularizer, compile=False)
    train(model, optimizer, share(x), share(y))
    model(share(x))  # with `fully_shard`, an evaluation leaves gathered parameters behind
    value, dead = regularizer.value(), regularizer.units.dead().double().mean().item()
    handle.hold()
    train(model, optimizer, share(x), share(y), 1)
    return model, value, dead


def one_process_units(case):
    model, value, dead = unit_training(case)
    return {name: parameter.detach() for name, parameter in model.named_parameters()}, value, dead


def check_units(flat):
    """Units of weights in several processes become zero together, as in one process."""
    spreads = [(data_parallel, own_part), (fully_sharded, own_part)]
    of_tokens = [(lambda model: tensor_parallel(flat, model), alone)]
    if dist.get_world_size() == 4:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
        data = mesh.get_group("data")
        of_tokens.append((lambda model: both(mesh, model), lambda part: own_part(part, data)))
    for case, (weights, value, dead) in zip(UNIT_TRAININGS, shared_out(UNIT_TRAININGS, one_process_units), strict=True):
        check_zeros(dead, case)
        for spread, share in spreads + (of_tokens if case[0] is TOKENS else []):
            model, other_value, other_dead = unit_training(case, spread, share)
            same(weights, model, (case, spread))
            torch.testing.assert_close(other_value, value)
            assert other_dead == dead


def target_training(recipe, target, name, spread=alone, share=alone, example=True):
    model, (x, y) = built(Net), batch(IMAGES[1])
    regularizer = getattr(gossamer, recipe)(model, example=x)
    if not example:  # non-zeros are counted, as they are on sharded weights
        regularizer = replace(regularizer, example=None)
    model = spread(model)
    optimizer = optimizer_of(name, model.parameters())
    handle = gossamer.attach(optimizer, regularizer, target=target, steps=50)
    train(model, optimizer, share(x), share(y), 52)
    assert handle.held
    return model, handle.reached


def check_targets():
    """Targets, data-parallel and on sharded weights: the zeros of one process, and the size that was asked for."""
    cases = [
        ("unit_tl1", gossamer.Target(params=0.4), "SGD", data_parallel, True),
        ("unit_tl1", gossamer.Target(params=0.4), "SGD", fully_sharded, False),
        ("integrated_tl1", gossamer.Target(params=0.3), "Adam", fully_sharded, False),
    ]
    for recipe, target, name, spread, example in cases if dist.get_world_size() == 2 else cases[:2]:
        expected, one = target_training(recipe, target, name, example=example)
        model, other = target_training(recipe, target, name, spread, own_part)
        same(dict(expected.named_parameters()), model, (recipe, spread))
        assert other.after == one.after
        assert 0 <= target.value * one.full - one.after <= 1 or example
    model, (x, _) = built(Net), batch(IMAGES[1])
    regularizer = gossamer.unit_tl1(model, example=x)
    optimizer = torch.optim.SGD(fully_sharded(model).parameters(), lr=0.1)
    for target in (gossamer.Target(dense_params=0.5), gossamer.Target(bytes=1000)):
        attach = partial(gossamer.attach, optimizer, regularizer, target=target, steps=100)
        refuses("Target(params=...)", attach)


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


# -- checkpoints, files, what is sent


def half(spread, whole_batch=False):
    model = spread(built(Tokens))
    optimizer = optimizer_of("Adam", model.parameters())
    handle = gossamer.attach(optimizer, gossamer.integrated_tl1(model, 0.3), schedule=gossamer.warm_up(4))
    x, y = batch(TOKENS[1])
    return model, optimizer, handle, (x, y) if whole_batch else (own_part(x), own_part(y))


def check_checkpoint(folder, layouts):
    """A checkpoint that is written in one layout and read in another continues like one process."""
    expected, optimizer, _, data = half(lambda model: model, whole_batch=True)
    train(expected, optimizer, *data, 4)
    expected = {name: parameter.detach() for name, parameter in expected.named_parameters()}
    writers = [*layouts, layouts[0]]
    for number, (writer, reader) in enumerate(pairwise(writers)):
        model, optimizer, handle, data = half(*writer)
        train(model, optimizer, *data, 2)
        save_checkpoint(states(model, optimizer), checkpoint_id=folder / str(number))
        model, optimizer, handle, data = half(*reader)
        loaded = states(model, optimizer)
        load_checkpoint(loaded, checkpoint_id=folder / str(number))
        set_model_state_dict(model, loaded["model"])
        set_optimizer_state_dict(model, optimizer, loaded["optimizer"])
        assert handle.steps == 2, handle.steps
        train(model, optimizer, *data, 2)
        same(expected, model, (writer, reader))


def states(model, optimizer):
    return {"model": get_model_state_dict(model), "optimizer": get_optimizer_state_dict(model, optimizer)}


def check_gathered(folder):
    """Gather, shrink, save: the lines of docs/scaling.md."""
    model, optimizer, _, data = half(fully_sharded)
    train(model, optimizer, *data, 3)
    refuses("docs/scaling.md", gossamer.shrink, model, data[0])
    refuses("docs/scaling.md", gossamer.save, model, folder / "net.safetensors")
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if dist.get_rank() == 0:
        net = Tokens()
        net.load_state_dict(state)
        small = gossamer.shrink(net, torch.arange(8))
        gossamer.save(small, folder / "net.safetensors")
        loaded = gossamer.load(folder / "net.safetensors", Tokens())
        assert sum(p.numel() for p in loaded.parameters()) < sum(p.numel() for p in net.parameters())
        torch.testing.assert_close(loaded(torch.arange(8)), net(torch.arange(8)))


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


def check_stages():
    """A pipeline of two stages: the coefficients of the whole model, and the zeros of one process."""
    strength = TRAININGS[0][1][1]
    with torch.device("meta"):
        whole = gossamer.integrated_tl1(Net(), strength)
    refuses("none of the weights", whole.on, nn.Sequential(nn.Linear(2, 2)))
    expected, (x, y) = built(Net), batch(IMAGES[1])
    optimizer = optimizer_of("SGD", expected.parameters())
    regularizer = gossamer.integrated_tl1(expected, strength)
    gossamer.attach(optimizer, regularizer, compile=False)
    train(expected, optimizer, x, y)
    check_zeros(zero_share(regularizer), "stages")
    is_last = dist.get_rank() % 2 == 1
    stage = built(Net)
    for name in ("conv", "grouped") if is_last else ("hidden", "last"):
        delattr(stage, name)
    own = whole.on(stage)
    assert [rule.terms for rule in own.rules] == [
        r.terms for r in regularizer.rules if r.name in dict(stage.named_parameters())
    ]
    optimizer = optimizer_of("SGD", stage.parameters())
    gossamer.attach(optimizer, own, compile=False)
    for _ in range(3):
        optimizer.zero_grad()
        (last_stage if is_last else first_stage)(stage, x, y, dist.get_rank() ^ 1)
        optimizer.step()
    same(
        {name: p for name, p in expected.named_parameters() if name in dict(stage.named_parameters())}, stage, "stages"
    )
    value = own.value()
    dist.all_reduce(value)  # over all pipelines
    torch.testing.assert_close(value * 2 / dist.get_world_size(), regularizer.value())


def first_stage(stage, x, y, other):
    sent = stage.grouped(stage.conv(x).relu()).relu().flatten(1)
    dist.send(sent.detach(), other)
    gradient = torch.empty_like(sent)
    dist.recv(gradient, other)
    sent.backward(gradient)


def last_stage(stage, x, y, other):
    received = torch.empty(len(x), stage.hidden.in_features)
    dist.recv(received, other)
    received.requires_grad_()
    nn.functional.cross_entropy(stage.last(stage.hidden(received).relu()), y).backward()
    dist.send(received.grad, other)


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


def check_every_recipe():
    """Data-parallel processes, with and without ZeRO, have the zeros of one process with every regularizer."""
    zero = {"kind": ZeroRedundancyOptimizer, "optimizer_class": torch.optim.SGD}
    for recipe, (weights, share) in zip(RECIPES, shared_out(RECIPES, one_process_recipe), strict=True):
        if recipe[0] != "l2":
            check_zeros(share, recipe)
        for options in ({}, zero):
            model, _ = recipe_training(recipe, data_parallel, own_part, **options)
            same(weights, model, (recipe, options))


def zero_training(kind, strength, **options):
    model = DistributedDataParallel(built(Tokens))
    optimizer = kind(list(model.parameters()), **options)
    handle = gossamer.attach(optimizer, gossamer.integrated_tl1(model, strength), schedule=gossamer.warm_up(2))
    train(model, optimizer, *map(own_part, batch(TOKENS[1])), 4)
    assert handle.steps == 4
    return model, optimizer, handle


def main(folder):
    dist.init_process_group("gloo")
    torch.set_default_dtype(torch.float64)  # rounding does not decide about zeros
    world = dist.get_world_size()
    flat = init_device_mesh("cpu", (world,))
    meshes = [(flat, [Shard(0)]), (flat, [Shard(1)])]
    if world == 4:
        square = init_device_mesh("cpu", (2, 2))
        strided = [_StridedShard(0, split_factor=2), Shard(0)]  # `fully_shard` on top of tensor parallelism
        meshes = [(square, [Shard(0), Shard(1)]), (square, strided), (square, [Replicate(), Shard(0)])]
    part(check_placements, meshes)
    part(check_refusals, flat)
    part(check_trainings, flat)
    part(check_bytes)
    part(check_bytes_of_units)
    part(check_stages)
    part(check_zero_redundancy)
    part(check_every_recipe)
    part(check_units, flat)
    part(check_targets)
    if world == 2:
        layouts = [(fully_sharded,), (lambda model: tensor_parallel(flat, model), True), (lambda model: model, True)]
        part(check_checkpoint, folder, layouts)
        part(check_gathered, folder)
    dist.barrier()
    dist.destroy_process_group()


def part(check, *args):
    begin = time.perf_counter()
    check(*args)
    if dist.get_rank() == 0:
        print(f"{check.__name__}: {time.perf_counter() - begin:.1f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
