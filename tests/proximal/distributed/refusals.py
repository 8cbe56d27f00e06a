"""What is refused, and what the error says."""

from functools import partial
from itertools import product

import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor, Partial, Shard, distribute_tensor

import gossamer
from gossamer.penalties import L1MinusL2, Penalty
from gossamer.regularizers import Regularizer, Rule, Term

from .models import Tokens, built, fully_sharded, refuses


def check_refusals(mesh):
    weight = nn.Linear(4, 6)
    weight.weight = nn.Parameter(distribute_tensor(weight.weight.detach(), mesh, [Shard(1)]))
    rule = gossamer.group_lasso(weight, 1.0).rules[0]
    refuses("L1MinusL2 has no proximal step", attach_rule, rule, L1MinusL2(), weight)
    weight.weight = nn.Parameter(DTensor.from_local(torch.randn(6, 4), mesh, [Partial()]))
    refuses("Redistribute the weight", attach_rule, rule, L1MinusL2(), weight)
    sharded = fully_sharded(built(Tokens))
    refuses("before", lambda: gossamer.unit_tl1(sharded, 1.0, example=torch.arange(8)))
    for original in (False, True):
        flat = FullyShardedDataParallel(built(Tokens), use_orig_params=original, device_id=torch.device("cpu"))
        refuses("FullyShardedDataParallel", gossamer.l1, flat, 1e-3)
        refuses("FullyShardedDataParallel", gossamer.measure, flat, torch.zeros(1, 2, dtype=torch.int64))
        check_wrapped_late(original)


def check_wrapped_late(original):
    """FSDP1 between a recipe and `attach`: every process is told, also one with no part of the weight."""
    model = built(Tokens)
    recipes = [gossamer.l1(model, 1e-3), gossamer.unit_tl1(model, 1e-3, example=torch.arange(8))]
    flat = FullyShardedDataParallel(model, use_orig_params=original, device_id=torch.device("cpu"))
    for regularizer, target in product(recipes, (None, gossamer.Target(params=0.5))):
        optimizer = torch.optim.SGD(flat.parameters(), lr=0.1)
        late = partial(gossamer.attach, optimizer, regularizer, target=target, steps=100)
        for what in (late, regularizer.value, partial(regularizer.owned_by, optimizer)):
            refuses("embed.weight` is wrapped in FullyShardedDataParallel", what)


def attach_rule(rule: Rule, penalty: Penalty, model: nn.Module) -> None:
    own = Regularizer(1.0, (Rule(rule.weight, (Term(penalty, 1.0, "outputs"),)),))
    gossamer.attach(torch.optim.SGD(model.parameters(), lr=0.1), own)
