"""Warnings of a training on sharded weights: those that one process gives."""

import warnings
from itertools import cycle

import torch
from torch import nn

import gossamer

from .models import TOKENS, Tokens, alone, batch, built, fully_sharded, optimizer_of, tensor_parallel, train

STEPS = 60


class FirstUnit(Tokens):
    """All hidden units but one are zero from the start, and get no gradient."""

    def __init__(self):
        super().__init__()
        with torch.no_grad():
            for zeros in (self.up.weight[1:], self.up.bias[1:], self.down.weight[:, 1:]):
                zeros.zero_()


class Unused(Tokens):
    """The output does not depend on the input."""

    def forward(self, x):
        return self.down(0.0 * self.up(self.embed(x)))


class Normed(Tokens):
    """A normalisation follows each weight."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16, bias=False), nn.Linear(16, 3, bias=False)

    def forward(self, x):
        for layer in (self.embed, self.up, self.down):
            x = layer(x)
            x = nn.functional.layer_norm(x, x.shape[-1:], eps=0.0)
        return x


# In turn on weights that are sharded and tensor-parallel ones.
CASES = [
    (Tokens, 100.0, "All weights of"),
    (FirstUnit, 1e-3, "has at most one unit left"),
    (Normed, 1e-6, "Every regularized weight is scale-free"),
    (Unused, 1e-6, "the output no longer depends on the input"),
    (Tokens, 1e-12, "no weight is zero"),
]


def check_warnings(flat):
    spreads = cycle([fully_sharded, lambda model: tensor_parallel(flat, model)])
    for (kind, strength, expected), spread in zip(CASES, spreads, strict=False):
        one = warned(kind, strength, alone)
        assert any(expected in message for message in one), (kind, one)
        assert warned(kind, strength, spread) == one, (kind, spread)


def warned(kind, strength, spread):
    model = spread(built(kind))
    optimizer = optimizer_of("SGD", model.parameters())
    gossamer.attach(optimizer, gossamer.l1(model, strength), steps=STEPS, compile=False)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        train(model, optimizer, *batch(TOKENS[1]), 2 * STEPS)
    return [str(warning.message) for warning in seen if warning.category is gossamer.SparsityWarning]
