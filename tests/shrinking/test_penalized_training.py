"""Units leave a network in the middle of a regularized training, and nothing else changes."""

import copy
import functools

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import gossamer

# Hardly a unit is to be left.
pytestmark = pytest.mark.filterwarnings("ignore::gossamer.SparsityWarning")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 8, 3, padding=1)
        self.mixed = nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.hidden = nn.Linear(8 * 4, 24)
        self.head = nn.Linear(24, 3)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.mixed(torch.relu(self.conv(x)))), 2)
        return self.head(torch.relu(self.hidden(x.flatten(1))))


def batch(step):
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(16, 2, 4, 4, generator=generator, dtype=torch.float64)
    return x, (x.mean((2, 3)) @ torch.tensor([[1.0, -1, 0], [0, 1, -1]], dtype=torch.float64)).argmax(1)


EXAMPLE = batch(0)[0]
OPTIMIZERS = {
    "sgd": (lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9), "euclidean", 3e-3),
    "adamw": (lambda p: torch.optim.AdamW(p, lr=5e-3), "adaptive", 3e-3),
}


def silence_dead_biases(model):
    """What `hold` does for weights: momentum must not give a dead unit a constant again."""
    with torch.no_grad():
        for layer in (model.conv, model.mixed, model.hidden):
            layer.bias[layer.weight.flatten(1).abs().sum(1) == 0] = 0


def train(model, optimizer, steps, scheduler=None, after=lambda model: None):
    for step in steps:
        x, y = batch(step)
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
        after(model)
        if scheduler:
            scheduler.step()


def new(kind):
    make, metric, strength = OPTIMIZERS[kind]
    torch.manual_seed(0)
    model = Net().double()
    optimizer = make(model.parameters())
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 400)
    handle = gossamer.attach(optimizer, gossamer.group_lasso(model, strength), metric=metric)
    return model, optimizer, handle, scheduler


@functools.cache
def states(kind):
    """The states of model, optimizer and scheduler after 200 steps."""
    model, optimizer, _, scheduler = new(kind)
    train(model, optimizer, range(200), scheduler)
    return model.state_dict(), optimizer.state_dict(), scheduler.state_dict()


def started(kind):
    parts = new(kind)
    model, optimizer, _, scheduler = parts
    for part, state in zip((model, optimizer, scheduler), states(kind), strict=True):
        part.load_state_dict(copy.deepcopy(state))
    return parts


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_held_training_goes_on_as_if_nothing_had_happened(kind):
    """Zeros held: the full network keeps its dead units dead, the small one has lost them; 50 steps are the same."""
    outputs = []
    for small in (False, True):
        model, optimizer, handle, scheduler = started(kind)
        gossamer.zero_dead_biases(model, EXAMPLE)
        handle.hold()
        before = sum(p.numel() for p in model.parameters())
        if small:
            plan = gossamer.shrink_(model, EXAMPLE, optimizer=optimizer)
            assert sum(p.numel() for p in model.parameters()) < 0.8 * before, str(plan)
        train(model, optimizer, range(200, 250), scheduler, silence_dead_biases)
        outputs.append(model(EXAMPLE).detach())
        handle.remove()
    torch.testing.assert_close(*outputs, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_penalized_training_goes_on(kind):
    model, optimizer, handle, scheduler = started(kind)
    gossamer.zero_dead_biases(model, EXAMPLE)
    gossamer.shrink_(model, EXAMPLE, optimizer=optimizer)
    weights = [id(p) for p in model.parameters()]
    train(model, optimizer, range(200, 230), scheduler)
    assert handle.steps == 230
    assert [id(p) for p in model.parameters()] == weights
    state = copy.deepcopy(optimizer.state_dict())
    optimizer.load_state_dict(state)
    handle.hold()
    gossamer.shrink_(model, EXAMPLE, optimizer=optimizer)
    train(model, optimizer, range(230, 240), scheduler)
    assert torch.isfinite(model(EXAMPLE)).all()
