"""A pipeline of two stages."""

import torch
import torch.distributed as dist
from torch import nn

import gossamer

from .models import IMAGES, Net, batch, built, check_zeros, optimizer_of, refuses, same, train, zero_share
from .trainings import TRAININGS


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
    refuses("whole model", lambda: gossamer.attach(optimizer, own, target=gossamer.Target(params=0.5), steps=100))
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
