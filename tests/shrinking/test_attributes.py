"""Attributes of the user's modules change only where they are the sizes of dimensions that lose units."""

import math

import pytest
import torch
from torch import nn

import gossamer
from gossamer.example import call_with
from gossamer.shrinking.analyse import facts
from gossamer.shrinking.trace import size_uses


class Attention(nn.Module):
    """Eight heads of width eight, and three other attributes that happen to be eight."""

    def __init__(self, flat="heads times width"):
        super().__init__()
        self.num_heads = self.head_dim = self.window_size = self.max_distance = self.depth = 8
        self.flat = flat
        self.query, self.key, self.value = (nn.Linear(8, 64) for _ in range(3))
        self.out = nn.Linear(64, 8)
        with torch.no_grad():
            for layer in (self.query, self.key, self.value):
                rows = layer.weight.view(8, 8, 8), layer.bias.view(8, 8)
                for part in rows:
                    part[:3] = 0  # three heads
                    part[:, 6:] = 0  # two dimensions of each head

    def split(self, x):
        return x.view(x.shape[0], x.shape[1], self.num_heads, self.head_dim).transpose(1, 2)

    def forward(self, x):
        batch, length, _ = x.shape
        padding = -length % self.window_size
        windows = nn.functional.pad(x, (0, 0, 0, padding)).view(batch, -1, self.window_size, x.shape[2])
        places = torch.arange(length)
        far = (places[:, None] - places[None, :]).abs().clamp(max=self.max_distance)
        q, k, v = (self.split(layer(x)) for layer in (self.query, self.key, self.value))
        mixed = torch.softmax(q @ k.mT / 8 - far, dim=-1) @ v
        if self.flat == "heads times width":
            flat = mixed.transpose(1, 2).reshape(batch, length, self.num_heads * self.head_dim)
        else:
            flat = mixed.transpose(1, 2).flatten(2)
        return self.out(flat) + windows.mean((1, 2)).unsqueeze(1)


@pytest.mark.parametrize("flat", ["heads times width", "flatten"])
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("length", [1, 5])
def test_equal_integers_are_told_apart(flat, in_place, length):
    torch.manual_seed(0)
    model = Attention(flat).eval()
    inputs = [torch.randn(2, n, 8) for n in (1, 5, 8, 20)]
    wanted = [model(x) for x in inputs]
    example = torch.randn(2, length, 8)
    if in_place:
        plan, small = gossamer.shrink_(model, example), model
    else:
        plan = gossamer.plan(model, example, form="module")
        small = plan.apply()
    assert (small.num_heads, small.head_dim) == (5, 6)
    assert (small.window_size, small.max_distance, small.depth) == (8, 8, 8)
    assert {s.attribute for s in plan.sizes if s.module == ""} == {"num_heads", "head_dim"}
    for x, output in zip(inputs, wanted, strict=True):
        torch.testing.assert_close(small(x), output, rtol=1e-4, atol=1e-5)


class TwoMeanings(nn.Module):
    """One attribute is the width of a hidden layer and the length of a window: it cannot change."""

    def __init__(self):
        super().__init__()
        self.size = 6
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 4)
        with torch.no_grad():
            self.first.weight[1:3] = 0
            self.first.bias[1:3] = 0

    def forward(self, x):
        windows = x.view(x.shape[0], -1, self.size, 4)
        hidden = torch.relu(self.first(x)).view(-1, self.size)
        return self.second(hidden).view(x.shape) + windows.mean((1, 2, 3)).view(-1, 1, 1)


def test_an_attribute_that_also_means_something_else_keeps_its_value():
    model = TwoMeanings().eval()
    small = gossamer.shrink(model, torch.randn(2, 12, 4), form="module")
    assert small.size == small.first.out_features == 6
    x = torch.randn(3, 18, 4)
    torch.testing.assert_close(small(x), model(x))


def test_uses_of_attributes_are_found_without_changing_the_model():
    model = Attention().eval()
    before = dict(vars(model))
    uses = size_uses(model, call_with(model, torch.randn(2, 5, 8)))
    assert dict(vars(model)) == before
    assert all(type(value) is not int or type(before[name]) is int for name, value in vars(model).items())
    found = {(use.shape, use.dim, *sorted(name for _, name in use.size.attributes)) for use in uses}
    assert found == {
        ((2, 5, 8, 8), 2, "num_heads"),
        ((2, 5, 8, 8), 3, "head_dim"),
        ((2, 5, 64), 2, "head_dim", "num_heads"),
        ((2, 1, 8, 8), 2, "window_size"),
    }


def test_no_forward_looks_for_attributes_where_no_written_size_changes(monkeypatch):
    def fail(*_):
        raise AssertionError

    monkeypatch.setattr(facts, "size_uses", fail)
    layers = nn.Linear(6, 8), nn.ReLU(), nn.Unflatten(1, (4, 2)), nn.Flatten(), nn.Linear(8, 2)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), *layers)
    with torch.no_grad():
        model[0].weight[:2], model[0].bias[:2] = 0, 0
    assert gossamer.shrink(model, torch.randn(3, 4))[0].out_features == 4
    with torch.no_grad():
        model[2].weight[2:4], model[2].bias[2:4] = 0, 0
    with pytest.raises(AssertionError):
        gossamer.shrink(model, torch.randn(3, 4))


class Wide(nn.Module):
    """An attribute is the width of a hidden layer, of which three units are zero, and has another use."""

    def __init__(self, use):
        super().__init__()
        self.width, self.use = 8, use
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3)
        with torch.no_grad():
            self.first.weight[2:5] = 0
            self.first.bias[2:5] = 0

    def forward(self, x):
        hidden = torch.relu(self.first(x)).view(x.shape[0], x.shape[1], self.width)
        return self.second(self.use(self, hidden, x))


def scattered(m, h):
    h = h.clone()
    h[:, : m.width] *= 2
    return h


NUMBERS = {
    "a number of positions": lambda m, h, x: h[:, : m.width],
    "positions from the end": lambda m, h, x: h[:, -m.width :].mean(1),
    "positions of the input": lambda m, h, x: h + x[:, : m.width].sum((1, 2))[:, None, None],
    "overwritten positions": lambda m, h, x: scattered(m, h),
    "a position": lambda m, h, x: h[:, min(x.shape[1], m.width) - 1],
    "a narrowed length": lambda m, h, x: h.narrow(1, 0, min(x.shape[1], m.width)),
    "a factor": lambda m, h, x: h * m.width,
    "a divisor": lambda m, h, x: h / m.width**0.5,
    "its root": lambda m, h, x: h / math.sqrt(m.width),
    "a factor at some lengths": lambda m, h, x: h * m.width if x.shape[1] > 50 else h,
    "compared": lambda m, h, x: h * 2 if x.shape[1] > m.width else h,
    "compared after all": lambda m, h, x: h * 2 if 2 * x.shape[1] >= 3 * (m.width - 1) else h,
    "a remainder": lambda m, h, x: h * (1 + x.shape[1] % m.width),
    "a distance": lambda m, h, x: h + torch.arange(x.shape[1]).clamp(max=m.width)[:, None],
}


@pytest.mark.parametrize("length", [1, 5, 9])
@pytest.mark.parametrize("use", NUMBERS)
def test_an_attribute_that_is_a_number_keeps_its_value(use, length):
    torch.manual_seed(0)
    model = Wide(NUMBERS[use]).eval()
    small = gossamer.shrink(model, torch.randn(2, length, 4), form="module")
    assert small.width == small.first.out_features == 8
    for longer in (1, 5, 6, 7, 8, 9, 10, 11, 20, 51):
        x = torch.randn(2, longer, 4)
        torch.testing.assert_close(small(x), model(x), rtol=1e-4, atol=1e-5)


UNITS = {
    "a number of units": lambda m, h, x: h[..., : m.width],
    "units from the end": lambda m, h, x: h[:, :, -m.width :],
    "compared with the units": lambda m, h, x: h if h.shape[-1] == m.width else -h,
}


@pytest.mark.parametrize("use", UNITS)
def test_an_attribute_that_meets_the_units_only_changes_with_them(use):
    torch.manual_seed(0)
    model = Wide(UNITS[use]).eval()
    plan = gossamer.plan(model, torch.randn(2, 5, 4), form="module")
    small = plan.apply()
    assert small.width == small.first.out_features == 5
    assert "attribute width: 8 -> 5" in [str(change) for change in plan.changes]
    x = torch.randn(3, 20, 4)
    torch.testing.assert_close(small(x), model(x), rtol=1e-4, atol=1e-5)
