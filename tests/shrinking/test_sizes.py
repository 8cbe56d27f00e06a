"""A shrunk network gives the outputs of the full one at every size, not only at the sizes of the example."""

import math

import pytest
import torch
from torch import nn

import gossamer
from gossamer.example import call_with
from gossamer.shrinking.apply import evaluation_reference
from gossamer.shrinking.apply.other_sizes import at_other_sizes
from gossamer.shrinking.apply.probes import IndexRanges


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
    "a branch far away": lambda h, x: h * 2 if x.shape[1] > 11 else h,
    "odd or even": lambda h, x: h * (1 + x.shape[1] % 2),
    "a third of the length, rounded": lambda h, x: h * (1 + x.shape[1] // 3),
    "eighths of the length": lambda h, x: h * (1 + x.shape[1] // 8),
    "quarters of the batch": lambda h, x: h * (1 + x.shape[0] // 4),
    "at most four": lambda h, x: h * min(x.shape[1], 4),
    "at least 32": lambda h, x: h / max(x.shape[1], 32),
    "a large batch": lambda h, x: h * 2 if x.shape[0] > 4 else h,
    "one sample": lambda h, x: h * 2 if x.shape[0] == 1 else h,
    "longer than a hundred": lambda h, x: h * 2 if x.shape[1] // 2 > 50 else h,
    "more samples than positions": lambda h, x: h * 2 if x.shape[0] > x.shape[1] else h,
    "as many samples as pairs": lambda h, x: h * (1 + (x.shape[0] == x.shape[1] // 2)),
    "as many samples as positions": lambda h, x: h * 2 if x.shape[0] == x.shape[1] else h,
    "the eighth position": lambda h, x: h * (1 + (torch.arange(x.shape[1]) == 7)[:, None]),
    "ceiling of pooling": lambda h, x: nn.functional.lp_pool1d(h.mT, 2, 2, ceil_mode=True).mT,
    "nothing": lambda h, x: h,
}
BRANCHES = [
    "a branch far away",
    *(name for name in BETWEEN if name.startswith(("a large", "one s", "longer", "more", "as many"))),
]


# The exporter computes the root once, and takes the length of the pooled sequence to be more than one.
REFUSED_AS_A_GRAPH = [
    "times the root of the length",
    "padded average pooling",
    "at most four",
    "at least 32",
    "ceiling of pooling",
    *BRANCHES,
]


@pytest.mark.parametrize("form", ["module", "graph"])
@pytest.mark.parametrize("between", BETWEEN)
def test_constants_that_depend_on_a_size_are_not_folded(between, form):
    torch.manual_seed(0)
    model = WithConstant(BETWEEN[between]).eval()
    small = gossamer.shrink(model, torch.randn(2, 5, 4), form=form)
    # A zero stays a zero at every size, except where the size is added to it or it becomes a share of the positions.
    changed = between in ("softmax over positions", "plus the length")
    assert (small.get_parameter("first.weight").shape[0] == 6) is changed
    for shape in (
        (2, 5, 4),
        (7, 5, 4),
        (2, 9, 4),
        (3, 2, 4),
        (2, 13, 4),
        (1, 1, 4),
        (4, 4, 4),
        (2, 40, 4),
        (1, 103, 4),
    ):
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


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("form", ["module", "graph"])
def test_of_one_sample_of_length_one_nothing_is_learned_about_others(between, form):
    torch.manual_seed(0)
    model = WithConstant(BETWEEN[between]).eval()
    small = gossamer.shrink(model, torch.randn(1, 1, 4), form=form)
    for shape in ((1, 1, 4), (2, 5, 4), (5, 8, 4), (3, 3, 4), (1, 17, 4), (2, 40, 4)):
        x = torch.randn(shape)
        if form == "module" or accepts(small, x):
            torch.testing.assert_close(small(x), model(x), rtol=1e-4, atol=1e-5)


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


class Flattened(nn.Module):
    """Flattens space, rounded down, into the inputs of a layer; another one reads a sum over space."""

    def __init__(self):
        super().__init__()
        self.conv, self.pool = nn.Conv2d(2, 6, 1), nn.AvgPool2d(4)
        self.flat, self.sums = nn.Linear(24, 3), nn.Linear(6, 3)
        with torch.no_grad():
            self.conv.weight[1:3] = 0
            self.conv.bias[1:3] = 0.7

    def forward(self, x):
        x = torch.relu(self.conv(x))
        return self.flat(self.pool(x).flatten(1)) + self.sums(x.sum((2, 3)))


def test_where_space_is_flattened_the_next_size_is_tried_and_no_further_one():
    torch.manual_seed(0)
    model, tried = Flattened().eval(), []
    model.register_forward_pre_hook(lambda _, inputs: tried.append(tuple(inputs[0].shape)))
    at_other_sizes(model, call_with(model, torch.randn(2, 2, 8, 8)), IndexRanges())
    of_two_channels = [shape for shape in tried if shape[1] == 2]
    assert of_two_channels == [(3, 2, 8, 8), (3, 2, 16, 16), (1, 2, 9, 9), (3, 2, 9, 9)]
    small, x = gossamer.shrink(model, torch.randn(2, 2, 8, 8)), torch.randn(2, 2, 9, 9)
    torch.testing.assert_close(small(x), model(x), rtol=1e-4, atol=1e-4)


class Frames(nn.Module):
    """Flattens the width of an image into the inputs of a layer, and takes any height."""

    def __init__(self):
        super().__init__()
        self.conv, self.last = nn.Conv2d(2, 3, 1), nn.Linear(24, 3)

    def forward(self, x):
        return self.last(torch.relu(self.conv(x)).transpose(1, 2).flatten(2))


@pytest.mark.parametrize(("make", "accepted"), [(Frames, (3, 2, 9, 8)), (lambda: nn.Linear(8, 3), (3, 4, 9, 8))])
def test_a_size_of_one_dimension_is_found_where_both_together_are_refused(make, accepted):
    model = make().eval()
    found = at_other_sizes(model, call_with(model, torch.randn(2, 2, 8, 8)), IndexRanges())
    assert tuple(found.call.args[0].shape) == accepted


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


class Table(nn.Module):
    """A position table of which a part is used, taken in different ways; units 1 and 2 are zero."""

    def __init__(self, use):
        super().__init__()
        self.table = nn.Parameter(torch.randn(12, 6))
        self.register_buffer("numbers", torch.arange(12)[None])
        self.rows = nn.Embedding(14, 6)
        self.first, self.second, self.use = nn.Linear(4, 6), nn.Linear(6, 3), use
        with torch.no_grad():
            for zero in (self.table[:, 1:3], self.rows.weight[:, 1:3], self.first.weight[1:3], self.first.bias[1:3]):
                zero.zero_()

    def forward(self, x):
        return self.second(torch.relu(self.first(x) + self.use(self, x.shape[1])))


PARTS = {
    "converted": lambda m, length: m.table.to(torch.float32)[:length],
    "computed with": lambda m, length: (m.table * 2)[:length],
    "split": lambda m, length: m.table.split([length, 12 - length])[0],
    "one of several parts": lambda m, length: m.table.split(length)[0],
    "half of it": lambda m, length: m.table.chunk(2)[0][:length] if length <= 6 else m.table[:length],
    "indexed": lambda m, length: m.table[torch.arange(length)],
    "the end of it": lambda m, length: m.table[-length:],
    "numbers with an offset": lambda m, length: m.rows(m.numbers[:, :length] + 2),
    "all numbers with an offset": lambda m, length: m.rows(m.numbers + 2)[:, :length],
}


@pytest.mark.parametrize("length", [1, 5])
@pytest.mark.parametrize("part", PARTS)
def test_tables_keep_their_length_however_a_part_is_taken(part, length):
    torch.manual_seed(0)
    model = Table(PARTS[part]).eval()
    small = gossamer.shrink(model, torch.randn(2, length, 4), form="module")
    assert small.first.out_features == 4
    assert len(small.table) == small.numbers.shape[1] == 12
    for longer in (1, 4, 7, 12):
        x = torch.randn(3, longer, 4)
        torch.testing.assert_close(small(x), model(x), rtol=1e-4, atol=1e-5)


def test_probes_index_the_whole_embedding_table():
    model = Positions().eval()
    reference = evaluation_reference(model, call_with(model, torch.zeros(2, 4, dtype=torch.long)))
    assert {probe.call.args[0].shape for probe in reference.probes} == {(2, 4), (3, 8)}
    drawn = torch.cat([probe.call.args[0].flatten() for probe in reference.probes[1:]])
    assert drawn.max() < 20
    assert len(drawn.unique()) > 10


class Inception(nn.Module):
    """Padded average pooling of a map that is one pixel large at the size of the example, after a constant channel."""

    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 6, 3, stride=2), nn.Conv2d(6, 4, 1)
        with torch.no_grad():
            self.stem.weight[1:3], self.stem.bias[1:3] = 0, torch.tensor([0.7, -1.0])

    def forward(self, x):
        pooled = nn.functional.avg_pool2d(torch.relu(self.stem(x)), 3, stride=1, padding=1)
        return self.head(pooled).amax((2, 3))


@pytest.mark.parametrize("size", [3, 4, 9])
@pytest.mark.parametrize("in_place", [False, True])
def test_padded_average_pooling_holds_for_other_image_sizes(size, in_place):
    torch.manual_seed(0)
    model = Inception().eval()
    inputs = [torch.randn(2, 3, n, n) for n in (3, 8, 21)]
    expected = [model(x) for x in inputs]
    example = torch.randn(1, 3, size, size)
    if in_place:
        gossamer.shrink_(model, example)
    small = model if in_place else gossamer.shrink(model, example)
    assert small.stem.out_channels == 5
    for x, wanted in zip(inputs, expected, strict=True):
        torch.testing.assert_close(small(x), wanted, rtol=1e-4, atol=1e-5)


class PartlyZeroPositions(nn.Module):
    """A learned position table of nine rows, whose column 1 is zero in the first six."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(11, 4)
        self.place = nn.Parameter(torch.randn(1, 9, 4))
        self.head = nn.Linear(4, 3)
        with torch.no_grad():
            self.table.weight[:, 1] = 0
            self.place[:, :6, 1] = 0

    def forward(self, tokens):
        return self.head(torch.tanh(self.table(tokens) + self.place[:, : tokens.shape[1]])).mean(1)


@pytest.mark.parametrize("form", ["module", "graph"])
def test_rows_of_a_position_table_that_the_example_leaves_out(form):
    torch.manual_seed(0)
    model = PartlyZeroPositions().eval()
    small = gossamer.shrink(model, torch.randint(0, 11, (2, 3)), form=form)
    for length in (1, 3, 6, 9):
        tokens = torch.randint(0, 11, (2, length))
        try:
            outputs = small(tokens)
        except gossamer.GuardError:  # a graph may refuse another size
            assert form == "graph"
        else:
            torch.testing.assert_close(outputs, model(tokens))


class WithSecond(WithConstant):
    """A second input, a tensor or a number."""

    def forward(self, x, second):
        return self.second(self.between(torch.relu(self.first(x)), x, second))


def require(condition):
    if not condition:
        raise ValueError


def coupled(shape, between):
    """What happens between the layers, if the second input has this shape; else the model refuses it."""

    def apply(h, x, y):
        require(tuple(y.shape) == shape(*x.shape[:2]))
        return between(h, x, y)

    return apply


LENGTH = lambda h, x, y: h * x.shape[1]  # noqa: E731
BATCH = lambda h, x, y: h / x.shape[0]  # noqa: E731
SECOND = {
    "a ratio of lengths": (lambda b, n: (b, n, 4), lambda h, x, y: h * (x.shape[1] / y.shape[1]), False),
    "a ratio of batches": (lambda b, n: (b, n, 4), lambda h, x, y: h * (x.shape[0] / y.shape[0]), False),
    "the longer one": (lambda b, n: (b, n, 4), lambda h, x, y: h * (1 + (x.shape[1] > y.shape[1])), False),
    "twice the length": (lambda b, n: (b, 2 * n), LENGTH, True),
    "one position more": (lambda b, n: (b, n + 1), LENGTH, True),
    "all pairs of positions": (lambda b, n: (b, n * n), LENGTH, True),
    "all positions": (lambda b, n: (b * n,), LENGTH, True),
    "the batch times heads": (lambda b, n: (8 * b, 1), BATCH, True),
    "pairs of each head": (lambda b, n: (8 * b, n, n), lambda h, x, y: h * x.shape[1] / x.shape[0], True),
}


@pytest.mark.parametrize("case", SECOND)
@pytest.mark.parametrize("in_place", [False, True])
def test_sizes_of_two_inputs_are_told_apart_and_changed_together(case, in_place):
    torch.manual_seed(0)
    shape, between, is_coupled = SECOND[case]
    model = WithSecond(coupled(shape, between) if is_coupled else between).eval()
    sizes = [((2, 5), (2, 5)), ((1, 5), (1, 5)), ((3, 7), (3, 7)), ((4, 1), (4, 1)), ((5, 3), (5, 3))]
    sizes += [] if is_coupled else [((2, 5), (3, 5)), ((2, 5), (2, 6)), ((2, 5), (2, 4)), ((1, 3), (4, 9))]
    inputs = [(torch.randn(*own, 4), torch.randn(shape(*second))) for own, second in sizes]
    wanted = [model(*x) for x in inputs]
    small = model
    if in_place:
        gossamer.shrink_(model, inputs[0])
    else:
        small = gossamer.shrink(model, inputs[0], form="module")
    assert small.first.out_features == 5
    for x, output in zip(inputs, wanted, strict=True):
        torch.testing.assert_close(small(*x), output, rtol=1e-4, atol=1e-5)


NUMBERS = {
    "a factor": (lambda h, x, k: h * k, 2.0, [0.5, -1.0, 3.0]),
    "a whole factor": (lambda h, x, k: h * k, 2, [0, 1, 7]),
    "odd or even": (lambda h, x, k: h * (1 + k % 2), 2, [1, 3, 4]),
    "the first position": (lambda h, x, k: h + torch.arange(k, k + x.shape[1])[:, None], 2, [0, 3]),
    "a flag": (lambda h, x, k: h * 2 if k else h, False, [True]),
    "two numbers": (lambda h, x, k: h * k[1], (2, 3), [(2, 2), (1, 4)]),
}


@pytest.mark.parametrize("case", NUMBERS)
@pytest.mark.parametrize("form", ["module", "graph"])
def test_constants_that_depend_on_an_argument_are_not_folded(case, form):
    torch.manual_seed(0)
    between, example, others = NUMBERS[case]
    model, x = WithSecond(between).eval(), torch.randn(2, 5, 4)
    small = gossamer.shrink(model, (x, example), form=form)
    for number in (example, *others):
        try:
            outputs = small(x, number)
        except gossamer.GuardError:
            assert form == "graph"
            assert number != example
        else:
            torch.testing.assert_close(outputs, model(x, number), rtol=1e-4, atol=1e-5)


def test_units_that_are_dead_at_the_length_of_the_example_only_keep_their_biases():
    torch.manual_seed(0)
    between = nn.Linear(6, 6)
    model = WithConstant(lambda h, x: torch.relu(between(h * torch.arange(x.shape[1])[:, None]))).eval()
    model.add_module("in_between", between)
    before = between.bias.clone()
    assert gossamer.zero_dead_biases(model, torch.randn(1, 1, 4)) == 2  # the constants of the first layer
    assert torch.equal(between.bias, before)
