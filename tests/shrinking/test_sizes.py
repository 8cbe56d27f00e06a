"""A shrunk network gives the outputs of the full one at every size, not only at the sizes of the example."""

import math

import pytest
import torch
from torch import nn

import gossamer


class WithConstant(nn.Module):
    """Two linear layers; unit 1 of the first is the constant 0.5. What happens between them depends on a size."""

    def __init__(self, between):
        super().__init__()
        self.first = nn.Linear(4, 6)
        self.second = nn.Linear(6, 3)
        self.between = between
        with torch.no_grad():
            self.first.weight[1] = 0
            self.first.bias[1] = 0.5
            self.first.weight[2] = 0
            self.first.bias[2] = -1.0  # a zero after the ReLU, whatever the size

    def forward(self, x):
        return self.second(self.between(torch.relu(self.first(x)), x))


BETWEEN = {
    "sum over positions": lambda h, x: h.sum(1),
    "mean over positions": lambda h, x: h.mean(1),
    "softmax over positions": lambda h, x: h.softmax(1),
    "divided by the batch size": lambda h, x: h / x.shape[0],
    "times the root of the length": lambda h, x: h * math.sqrt(x.shape[1]),
    "cumulative sum": lambda h, x: h.cumsum(1),
    "plus the length": lambda h, x: h + x.shape[1],
    "padded average pooling": lambda h, x: nn.functional.avg_pool1d(h.mT, 3, stride=2, padding=1).mT,
    "nothing": lambda h, x: h,
}


# The exporter computes the root once, and takes the length of the pooled sequence to be more than one.
REFUSED_AS_A_GRAPH = ["times the root of the length", "padded average pooling"]


@pytest.mark.parametrize("form", ["module", "graph"])
@pytest.mark.parametrize("between", BETWEEN)
def test_constants_that_depend_on_a_size_are_not_folded(between, form):
    torch.manual_seed(0)
    model = WithConstant(BETWEEN[between]).eval()
    small = gossamer.shrink(model, torch.randn(2, 5, 4), form=form)
    # A zero stays a zero at every size, except where the size is added to it or it becomes a share of the positions.
    changed = between in ("softmax over positions", "plus the length")
    assert (small.get_parameter("first.weight").shape[0] == 6) is changed
    for shape in ((2, 5, 4), (7, 5, 4), (2, 9, 4), (3, 2, 4)):
        x = torch.randn(shape)
        if form == "graph" and not accepts(small, x):
            assert between in REFUSED_AS_A_GRAPH
        else:
            torch.testing.assert_close(small(x), model(x), rtol=1e-4, atol=1e-5)


def accepts(graph, x):
    """Whether the graph was exported for inputs of this shape; if not, it says so."""
    try:
        graph(x)
    except gossamer.GuardError:
        return False
    return True


@pytest.mark.parametrize("between", ["mean over positions", "nothing"])
def test_constants_that_are_the_same_at_all_sizes_are_folded(between):
    torch.manual_seed(0)
    model = WithConstant(BETWEEN[between]).eval()
    assert gossamer.shrink(model, torch.randn(2, 5, 4)).first.out_features == 4


class SumOverSpace(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 6, 3)
        self.head = nn.Linear(6, 3)
        with torch.no_grad():
            self.conv.weight[1:3] = 0
            self.conv.bias[1:3] = 0.7

    def forward(self, x):
        return self.head(torch.relu(self.conv(x)).sum((2, 3)))


def test_sums_over_space_hold_for_other_image_sizes():
    torch.manual_seed(0)
    model = SumOverSpace().eval()
    small = gossamer.shrink(model, torch.randn(1, 2, 8, 8))
    for size in (8, 12, 23):
        x = torch.randn(2, 2, size, size)
        torch.testing.assert_close(small(x), model(x), rtol=1e-4, atol=1e-4)


class Positions(nn.Module):
    """A learned position table, position numbers and a causal mask, all longer than the example."""

    def __init__(self, longest=12, width=8):
        super().__init__()
        self.tokens = nn.Embedding(20, width)
        self.places = nn.Embedding(longest, width)
        self.table = nn.Parameter(torch.randn(longest, width))
        self.register_buffer("numbers", torch.arange(longest)[None])
        self.register_buffer("mask", torch.ones(longest, longest).tril())
        self.hidden = nn.Linear(width, 6)
        self.out = nn.Linear(6, 3)
        with torch.no_grad():
            self.hidden.weight[2:4] = 0
            self.hidden.bias[2:4] = 0

    def forward(self, x):
        length = x.shape[1]
        h = self.tokens(x) + self.places(self.numbers[:, :length]) + self.table[:length]
        h = self.mask[:length, :length] @ h
        return self.out(torch.relu(self.hidden(h)))


@pytest.mark.parametrize("length", [1, 4, 12])
@pytest.mark.parametrize("in_place", [False, True])
def test_tables_and_masks_keep_their_length(length, in_place):
    torch.manual_seed(0)
    model = Positions().eval()
    inputs = [torch.randint(0, 20, (2, n)) for n in (1, 3, 7, 12)]
    expected = [model(x) for x in inputs]
    example = torch.randint(0, 20, (2, length))
    if in_place:
        gossamer.shrink_(model, example)
        small = model
    else:
        small = gossamer.shrink(model, example, form="module")
    assert small.hidden.out_features == 4
    assert small.table.shape[0] == small.mask.shape[0] == small.numbers.shape[1] == 12
    for x, wanted in zip(inputs, expected, strict=True):
        torch.testing.assert_close(small(x), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("fill", [0.0, 1.0, math.nan])
def test_an_example_that_shows_nothing_is_no_obstacle(fill):
    torch.manual_seed(0)
    model = WithConstant(BETWEEN["sum over positions"]).eval()
    small = gossamer.shrink(model, torch.full((1, 1, 4), fill))
    x = torch.randn(3, 6, 4)
    torch.testing.assert_close(small(x), model(x), rtol=1e-4, atol=1e-5)
