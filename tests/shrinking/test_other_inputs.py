"""A shrunk network gives the outputs of the full one at inputs that are far from the example, or depend on each other.

A length that is also a width, or is that of a mask; positions of a grid; sizes that are among the arguments as numbers.
"""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

import gossamer


class WithConstant(nn.Module):
    """Two linear layers, of which unit 1 of the first is the constant 0.5, with other layers beside them."""

    def __init__(self, forward):
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 3)
        self.narrow, self.wide, self.grid = nn.Linear(4, 3), nn.Linear(16, 3), nn.Conv2d(4, 3, 3, padding=1)
        self.down, self.up = nn.Conv2d(4, 4, 3, 2, 1), nn.ConvTranspose2d(4, 4, 3, 2, 1)
        self.heads = nn.ModuleList(nn.Linear(6, 3) for _ in range(3))
        self._forward = forward
        with torch.no_grad():
            self.first.weight[1] = 0
            self.first.bias[1] = 0.5

    def hidden(self, x):
        return torch.relu(self.first(x))

    def forward(self, *inputs):
        return self._forward(self, *inputs)


def length_beside_a_width(model, x, condition):
    return model.second(model.hidden(x).sum(1)) + model.wide(condition)


def time_first(model, x, padding):
    weights = x.sum(2).masked_fill(padding.mT, -math.inf).softmax(0)
    return model.second(model.hidden(x).sum(0)) + model.narrow((x * weights[..., None]).sum(0))


def grid_of_tokens(model, x):
    side = int(x.shape[1] ** 0.5)
    return height_and_width(model, x, side, side)


def strided(model, x):
    halves = model.down(x)
    around = model.up(model.up(model.down(halves)) + halves) + x
    return model.second(model.hidden(x.movedim(1, -1)).sum((1, 2))) + around.mean((1, 2, 3))[:, None]


def height_and_width(model, x, height, width):
    return model.second(model.hidden(x).sum(1)) + model.grid(x.mT.unflatten(2, (height, width))).mean((2, 3))


def views(model, x, number):
    return model.second(model.hidden(x).unflatten(0, (-1, number)).sum(1))


def bags(model, x, lengths):
    return model.second(torch.stack([part.sum(0) for part in model.hidden(x).split(lengths)]))


def pyramid(model, x, middle, top):
    upper = middle + functional.interpolate(top, scale_factor=2)
    lower = x + functional.interpolate(upper, scale_factor=2)
    return model.second(model.hidden(lower.movedim(1, -1)).sum((1, 2)))


def many(model, *inputs):
    *others, last = inputs
    return model.second(model.hidden(last).sum(1)) + sum(model.narrow(x).mean(1) for x in others)


def chosen(model, x, task):
    return model.heads[task](model.hidden(x))


def scaled(model, x, scale, task):
    return model.second(model.hidden(x) * scale) + model.heads[task].bias


def repeated(model, x, depth):
    return model.second(sum(model.hidden(x) for _ in model.heads[:depth]))


def of_list(model, x, others):
    return model.second(model.hidden(x) + sum(model.hidden(other) for other in others))


def of_list_before_a_number(model, others, factor):
    return model.second(sum(model.hidden(other) for other in others)) * factor


def of_dict(model, x, others):
    return of_list(model, x, list(others.values()))


def memory(model, x, stored):
    return model.second(model.hidden(torch.cat([stored, x], 1)).sum(1))


def levels(*sizes):
    return tuple(torch.randn(2, 4, *(scale * size for size in sizes)) for scale in (4, 2, 1))


def tensors(*shapes):
    return tuple(map(torch.randn, shapes))


def padded(samples, length):
    return torch.randn(length, samples, 4), torch.arange(length).expand(samples, length) >= length - 1


def some(number):
    return [torch.randn(2, 4) for _ in range(number)]


X = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
CASES = {
    "a length that is the width of another input": (
        length_beside_a_width, lambda n: tensors((2, n, 4), (2, 16)), [16, 5, 40]
    ),
    "the length first in one input and last in another": (time_first, lambda n: padded(2, n), [6, 9, 3]),
    "a square number of positions": (grid_of_tokens, lambda n: tensors((2, n, 4)), [16, 9, 64]),
    "one more than a multiple of four": (strided, lambda n: tensors((2, 4, n, n)), [17, 9, 21]),
    "one more than multiples of eight": (strided, lambda n: tensors((2, 4, n, n + 8)), [9, 17, 25]),
    "a height and a width": (height_and_width, lambda n: (torch.randn(2, 4 * n, 4), n, 4), [3, 4, 6]),
    "a height and a width alike": (height_and_width, lambda n: (torch.randn(2, n * n, 4), n, n), [4, 3, 6]),
    "a number of views": (views, lambda n: (torch.randn(12, 4), n), [4, 2, 3]),
    "lengths": (bags, lambda n: (torch.randn(2 * n, 4), [n, n]), [3, 2, 5]),
    "levels of a pyramid": (pyramid, lambda n: levels(n, n + 1), [2, 3, 1]),
    "the last of many sizes": (
        many, lambda n: tensors(*((2, k, 4) for k in range(5, 16)), (2, n, 4)), [16, 25, 1]
    ),
    "an index, of which the example shows the last": (chosen, lambda n: (X, n), [2, 0, 1]),
    "a factor beside an index": (scaled, lambda n: (X, float(n), 2), [1, 2, 3]),
    "a depth": (repeated, lambda n: (X, n), [3, 2, 1]),
    "the length of a list": (of_list, lambda n: (X, some(n)), [3, 1, 5]),
    "the length of a list before a tensor": (of_list_before_a_number, lambda n: (some(n), torch.ones(())), [3, 1, 5]),
    "the length of a dictionary": (of_dict, lambda n: (X, dict(enumerate(some(n)))), [3, 1, 5]),
    "an empty memory": (memory, lambda n: tensors((2, 5, 4), (2, n, 4)), [0, 3, 1]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("in_place", [False, True])
def test_constants_that_depend_on_an_input_are_not_folded(case, in_place):
    torch.manual_seed(0)
    forward, inputs, (own, *others) = CASES[case]
    model = WithConstant(forward).eval()
    calls = [inputs(number) for number in (own, *others)]
    wanted = [model(*call) for call in calls]
    if in_place:
        gossamer.shrink_(model, calls[0])
    small = model if in_place else gossamer.shrink(model, calls[0], form="module")
    for call, outputs in zip(calls, wanted, strict=True):
        torch.testing.assert_close(small(*call), outputs, rtol=1e-4, atol=1e-5)


class Normed(nn.Module):
    """Batch statistics, after a list and before a tensor of another rank."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = (
            nn.Linear(4, 6),
            nn.BatchNorm1d(6, track_running_stats=False),
            nn.Linear(6, 3),
        )
        with torch.no_grad():
            self.first.weight[1], self.first.bias[1] = 0, 0

    def forward(self, others, factor):
        return self.second(self.norm(sum(self.first(other) for other in others))) * factor


def test_lists_of_another_length_before_a_tensor_of_another_rank():
    torch.manual_seed(0)
    model, call = Normed().eval(), ([torch.randn(5, 4) for _ in range(3)], torch.ones(()))
    small = gossamer.shrink(model, call, form="module")
    torch.testing.assert_close(small(*call), model(*call))
