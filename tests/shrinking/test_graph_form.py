"""The graph form: it takes other sizes where the model does, and refuses what it was not exported for."""

import math
import warnings

import pytest
import torch
from torch import nn

import gossamer
from gossamer.shrinking import api


class HardCoded(nn.Module):
    """Spells out the width of its hidden layer, so that the class cannot lose units 2 and 3, which are zero."""

    def __init__(self, between=lambda h, x: h):
        super().__init__()
        self.first, self.second, self.between = nn.Linear(4, 6), nn.Linear(6, 3), between
        with torch.no_grad():
            self.first.weight[2:4] = 0
            self.first.bias[2:4] = -1.0

    def forward(self, x, mask=None, scale=1.0):
        h = torch.relu(self.first(x)).reshape(-1, 6).reshape(*x.shape[:-1], 6)
        h = h if mask is None else h * mask
        return self.second(self.between(h * scale, x))


def shrunk(model, example):
    torch.manual_seed(0)
    small = gossamer.shrink(model, example, form="graph")
    assert small.get_parameter("first.weight").shape == (4, 4)
    return small


X = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))


def attend(h, x):
    mask = torch.arange(x.shape[1])[None, :, None] >= 0  # the exporter writes `:` as a slice
    return nn.functional.scaled_dot_product_attention(x, x, h, mask.expand(x.shape[0], x.shape[1], x.shape[1]))


# What happens between the layers, the sizes that the graph must take, and those that it must refuse.
SIZES = {
    "any size": (lambda h, x: h, [(2, 5), (7, 9), (1, 1)], []),
    "the batch size": (lambda h, x: h / x.shape[0], [(2, 5), (7, 9), (1, 5)], []),
    "a branch on the length": (lambda h, x: h * 2 if x.shape[1] > 6 else h, [(2, 5), (3, 6)], [(2, 7)]),
    "a branch on a batch of one": (lambda h, x: h * 2 if x.shape[0] == 1 else h, [(2, 5), (4, 9)], [(1, 5)]),
    "an even batch": (lambda h, x: h * 2 if x.shape[0] % 2 else h, [(2, 5), (4, 9)], [(3, 5)]),
    "a fixed batch": (lambda h, x: h + torch.zeros(2, 1, 1), [(2, 5), (2, 9)], [(1, 5)]),
}


@pytest.mark.parametrize("case", SIZES)
def test_other_sizes_give_the_same_output_or_an_error(case):
    between, taken, refused = SIZES[case]
    model = HardCoded(between).eval()
    small = shrunk(model, X)
    for shape in taken:
        x = torch.randn(*shape, 4)
        torch.testing.assert_close(small(x), model(x))
    for shape in refused:
        with pytest.raises(gossamer.GuardError, match=r"takes `x` of shape .* form='module'"):
            small(torch.randn(*shape, 4))


def test_a_constant_folds_behind_attention_with_a_mask_of_the_length():
    model = HardCoded(attend).eval()
    with torch.no_grad():
        model.first.bias[2:4] = 1.0
    small = shrunk(model, X)
    for shape in ((2, 5), (7, 9)):
        x = torch.randn(*shape, 4)
        torch.testing.assert_close(small(x), model(x))


def test_an_example_of_one_sample_leaves_the_batch_free():
    model = HardCoded().eval()
    small = shrunk(model, X[:1, :1])
    for x in (X, X[:1], X[:1, :1]):
        torch.testing.assert_close(small(x), model(x))


def test_arguments_that_the_example_does_not_have_are_refused():
    model = HardCoded().eval()
    with pytest.raises(gossamer.GuardError, match="received 'mask', which the example does not have"):
        shrunk(model, X)(X, mask=torch.ones(2, 5, 1))
    with pytest.raises(gossamer.GuardError, match="received None instead of a tensor"):
        shrunk(model, (X, torch.ones(2, 5, 1)))(X)
    torch.testing.assert_close(shrunk(model, (X, None, 1.0))(X), model(X))
    small = shrunk(model, {"x": X, "scale": 2.0})
    torch.testing.assert_close(small(X, scale=2.0), model(X, scale=2.0))
    with pytest.raises(gossamer.GuardError, match=r"received 3\.0 instead of 2\.0"):
        small(X, scale=3.0)
    with pytest.raises(gossamer.GuardError, match="`scale` = 2"):
        small(X, 2.0, scale=2.0)  # in the place of the mask, which the example leaves out
    small = shrunk(model, (X, None, 1.0))
    with pytest.raises(gossamer.GuardError, match="instead of None"):
        small(X, torch.ones(2, 5, 1), 1.0)


class Factors(nn.Module):
    """Takes one tensor to multiply with and another one to add; flags to multiply with are a mask."""

    def __init__(self):
        super().__init__()
        self.layers = HardCoded()

    def forward(self, x, times=None, *, plus=None):
        if times is not None:
            x = x.masked_fill(times, 0.0) if times.dtype == torch.bool else x * (1 + times)
        return self.layers(x if plus is None else x + plus)


def test_an_argument_does_not_take_the_place_of_one_that_the_example_leaves_out():
    model, other = Factors().eval(), torch.rand(2, 5, 1)
    small = gossamer.shrink(model, {"x": X, "plus": other}, form="graph")
    torch.testing.assert_close(small(X, plus=other), model(X, plus=other))
    with pytest.raises(gossamer.GuardError, match="for an argument that the example does not have"):
        small(X, other, plus=other)
    with pytest.raises(gossamer.GuardError, match="received None instead of a tensor"):
        small(X)


@pytest.mark.parametrize("flags", [False, True])
def test_elements_of_another_kind_are_refused(flags):
    model, numbers = Factors().eval(), torch.rand(2, 5, 1)
    masks = [numbers > 0.5, numbers] if flags else [numbers, numbers > 0.5]
    small = gossamer.shrink(model, (X, masks[0]), form="graph")
    torch.testing.assert_close(small(X, masks[0]), model(X, masks[0]))
    with pytest.raises(gossamer.GuardError, match="elements instead of"):
        small(X, masks[1])
    with pytest.raises(gossamer.GuardError, match=r"received a tensor of shape \(5, 4\)"):
        small(X[0], masks[0])


@pytest.mark.parametrize("form", ["module", "graph"])
def test_an_example_may_have_one_tensor_for_two_inputs(form):
    model = Factors().eval()
    small = gossamer.shrink(model, {"x": X, "plus": X}, form=form)
    other = torch.randn(2, 5, 4)
    torch.testing.assert_close(small(X, plus=other), model(X, plus=other))


def test_a_graph_is_only_taken_for_a_gain_and_the_warning_says_what_it_cannot_do():
    model = HardCoded(lambda h, x: h + torch.zeros(2, 1, 1)).eval()
    with pytest.warns(gossamer.GraphFormWarning, match=r"evaluation mode only, and takes `x` of shape \(2, any, 4\)"):
        gossamer.shrink(model, X)
    model.second = nn.Sequential(nn.Linear(6, 3), nn.Linear(3, 400), nn.Linear(400, 3))  # the gain is below 1 %
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(gossamer.shrink(model, X), HardCoded)


def test_a_class_that_takes_other_sizes_is_preferred_to_a_graph_that_does_not():
    # The exporter computes the root once, for the length of the example.
    model = HardCoded(lambda h, x: h * math.sqrt(x.shape[1])).eval()
    graph = shrunk(model, X)
    with pytest.raises(gossamer.GuardError):
        graph(torch.randn(2, 9, 4))
    model.second = nn.Sequential(nn.Linear(6, 40), nn.Linear(40, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small = gossamer.shrink(model, X)
    assert isinstance(small, HardCoded)
    x = torch.randn(3, 9, 4)
    torch.testing.assert_close(small(x), model(x))


def test_the_error_of_save_says_how_a_graph_is_saved(tmp_path):
    model = HardCoded().eval()
    small = shrunk(model, X)
    with pytest.raises(gossamer.GossamerError, match=r"torch\.export\.save\(torch\.export\.export\(model, \(x,\)\)"):
        gossamer.save(small, tmp_path / "net.safetensors")
    torch.export.save(torch.export.export(small, (X,)), tmp_path / "net.pt2")
    torch.testing.assert_close(torch.export.load(tmp_path / "net.pt2").module()(X), model(X))


ROWS = {
    "all": lambda table, x: table[torch.arange(x.shape[1])],
    "all but two": lambda table, x: table[torch.arange(x.shape[1] + 2)][2:],
    "the last": lambda table, x: table[torch.arange(x.shape[1])][-1:],
    "of samples": lambda table, x: table[torch.arange(x.shape[0])][:, None],
}


class Rows(nn.Module):
    """Adds rows of a table; units 1 and 2 are zero."""

    def __init__(self, rows):
        super().__init__()
        self.table, self.rows = nn.Parameter(torch.randn(12, 6)), rows
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 3)
        with torch.no_grad():
            for zero in (self.table[:, 1:3], self.first.weight[1:3], self.first.bias[1:3]):
                zero.zero_()

    def forward(self, x):
        return self.second(torch.relu(self.first(x)) + self.rows(self.table, x))


@pytest.mark.parametrize("rows", ROWS)
def test_how_many_rows_of_a_table_are_read_stays_symbolic(rows):
    torch.manual_seed(0)
    model = Rows(ROWS[rows]).eval()
    small = gossamer.shrink(model, torch.randn(2, 5, 4), form="graph")
    assert small.get_parameter("first.weight").shape[0] == 4
    for shape in ((2, 5, 4), (3, 5, 4), (2, 8, 4), (7, 3, 4)):
        x = torch.randn(shape)
        torch.testing.assert_close(small(x), model(x))


def test_a_second_symbolic_export_is_made_only_where_the_first_fails(monkeypatch):
    model, exports = HardCoded().eval(), []

    def trace(*args, **options):
        exports.append(options)
        return original(*args, **options)

    original = api.trace
    monkeypatch.setattr(api, "trace", trace)
    gossamer.shrink(model, X, form="graph")
    assert sum("symbolic" in options for options in exports) == 1


class Several(HardCoded):
    """Adds up what its containers hold, however many there are."""

    def forward(self, x, named=None, listed=(), *more, **further):
        for each in (*(named or {}).values(), *listed, *more, *further.values()):
            x = x + each
        return super().forward(x)


Y = torch.full((2, 5, 1), 0.5)


@pytest.mark.parametrize(
    ("example", "call", "problem"),
    [
        ((X, {"a": Y}), (X, {"a": Y, "b": Y}), r"a dict with the keys \['a', 'b'\] for 'named' instead of .* \['a'\]"),
        ((X, {"a": Y, "b": Y}), (X, {"a": Y}), r"a dict with the keys \['a'\] for 'named'"),
        ((X, {"a": Y}), (X, [Y]), "a list of 1 for 'named'"),
        ((X, {"a": Y}), (X,), "no 'named', which the example has"),
        ((X, None, []), (X, None, [Y]), "a list of 1 for 'listed' instead of one with 0 elements"),
        ((X, None, [Y, Y]), (X, None, (Y, Y, Y)), "a tuple of 3 for 'listed' instead of one with 2 elements"),
        ((X, None, [Y, Y]), (X, None, [Y]), "a list of 1 for 'listed'"),
        ((X, None, [Y]), (X,), "no 'listed', which the example has"),
        ((X, None, [], Y), (X, None, []), "no 'more_0', which the example has"),
    ],
)
def test_containers_of_another_length_are_refused(example, call, problem):
    model = Several().eval()
    small = shrunk(model, example)
    torch.testing.assert_close(small(*example), model(*example))
    with pytest.raises(gossamer.GuardError, match=problem):
        small(*call)


def test_a_list_may_take_the_place_of_a_tuple_and_keys_may_come_in_another_order():
    model, example = Several().eval(), (X, {"a": Y, "b": 2 * Y}, [Y, Y])
    call = X, {"b": 3 * Y, "a": Y}, (Y, Y)
    torch.testing.assert_close(shrunk(model, example)(*call), model(*call))


def test_a_keyword_argument_that_the_forward_can_do_without_is_asked_for():
    small = shrunk(Several().eval(), {"x": X, "added": Y})
    with pytest.raises(gossamer.GuardError, match="no 'added', which the example has"):
        small(x=X)
