"""What the reader of a page has before each of its Python blocks: the blocks themselves do not define it."""

__all__ = ["SETTINGS"]

_NETWORK = """
import torch
import gossamer
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
x = example = torch.randn(2, 6)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
regularizer = gossamer.l1(model, 1e-3)


def train(model, optimizer, steps=1):
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(torch.randn(16, 6)), torch.randint(3, (16,))).backward()
        optimizer.step()
"""

_PENALTY = """
from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.penalties.base import ScalarPenalty, require_positive
"""

_BELIEF = (
    _NETWORK
    + """
class AdaBelief(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.01, "eps": 1e-8})

    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["exp_avg_var"] = parameter.grad.square()
                parameter.data -= group["lr"] * parameter.grad / (parameter.grad.abs() + group["eps"])


optimizer = AdaBelief(model.parameters())
"""
)

_ADAM = (
    "train(model, optimizer)"
    + _NETWORK
    + """
optimizer = torch.optim.Adam(model.parameters())
handle = gossamer.attach(optimizer, regularizer)
train(model, optimizer)
"""
)

_ONE_PROCESS = (
    _NETWORK
    + """
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

if not dist.is_initialized():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3))

    def forward(self, x):
        return self.blocks(x)


model = Net()
"""
)

# A pipeline of one stage.
_STAGE = """
train(model, optimizer)
stage, stage_input = Net(), x
optimizer = torch.optim.SGD(stage.parameters(), lr=0.1)
"""

_PATH = """
from itertools import islice, repeat

model = nn.Sequential(nn.Linear(6, 40), nn.ReLU(), nn.Linear(40, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
regularizer = gossamer.l1(model)


def batches_of_the_reader():
    for x in repeat(torch.randn(16, 6)):  # the body of the loop on the page is the reader's training step
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), torch.zeros(16, dtype=torch.long)).backward()
        optimizer.step()
        yield x, None


batches = batches_of_the_reader()
evaluate = lambda model: 0.9
"""

_LAYER = (
    _NETWORK
    + """
class MyLinear(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 3))
"""
)

# A page, and one setting for each of its blocks.
SETTINGS = {
    "how_to_add_a_penalty.md": [_PENALTY],
    "optimizers.md": [_BELIEF, _ADAM, "from torch.optim.swa_utils import get_ema_multi_avg_fn"],
    "scaling.md": [
        _ONE_PROCESS,
        *2 * ["train(model, optimizer); model = Net()"],
        _STAGE,
        "handle.remove()",
        "",
        "",
        "model = Net()",
    ],
    "shrinking.md": [_NETWORK + "small = gossamer.shrink(model, x)", ""],
    "targets.md": [_NETWORK, _PATH],
    "trainers.md": [_LAYER, ""],
    "units.md": [_NETWORK],
}
