"""Operations whose units can go: each network loses the units that are dead, and computes the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.utils.parametrizations import weight_norm

from gossamer.shrinking import GraphFormWarning, plan, shrink, shrink_


class Around(nn.Module):
    """A linear layer, something, and a linear layer; the first has six units."""

    def __init__(self, between: Callable[[Tensor], Tensor], *, units: int = 6, after: int | None = None) -> None:
        super().__init__()
        self.first = nn.Linear(4, units)
        self.last = nn.Linear(units if after is None else after, 3)
        self.between = between

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.between(self.first(x)))


def kill(layer: nn.Linear | nn.Conv2d, *units: int) -> None:
    with torch.no_grad():
        for parameter in (layer.weight, layer.bias):
            if parameter is not None:
                parameter[list(units)] = 0


def agrees(full: nn.Module, small: nn.Module, *inputs: Tensor) -> None:
    for x in inputs:
        torch.testing.assert_close(small.eval()(x), full.eval()(x), rtol=1e-4, atol=1e-6)


def _weighted(branches: Tensor) -> Tensor:
    return (branches * branches.softmax(1)).sum(1)


BETWEEN: dict[str, tuple[Callable[[Tensor], Tensor], int, int, tuple[int, ...], int]] = {
    # what happens, units before and after it, dead units, units that stay
    "glu": (lambda h: F.glu(h, -1), 6, 3, (1, 4), 4),
    "strided slices": (lambda h: torch.cat([torch.relu(h[..., ::2]), h[..., 1::2]], -1), 6, 6, (2, 3, 5), 4),
    "index_select": (lambda h: h.index_select(1, torch.tensor([0, 2])), 6, 6, (1,), 5),
    "sum over branches": (lambda h: torch.stack(h.chunk(2, -1)).sum(0), 6, 3, (1, 4), 4),
    "softmax over branches": (lambda h: _weighted(torch.stack(h.chunk(2, -1), 1)), 6, 3, (1, 4), 4),
}  # fmt: skip


@pytest.mark.parametrize("form", ["module", "graph"])
@pytest.mark.parametrize("name", BETWEEN)
def test_between_two_layers(name: str, form: str) -> None:
    torch.manual_seed(0)
    between, before, after, dead, stays = BETWEEN[name]
    model = Around(between, units=before, after=after)
    kill(model.first, *dead)
    x = torch.randn(2, 5, 4)
    small = shrink(model, x, form=form)  # type: ignore[arg-type]
    assert small.get_parameter("first.weight").shape[0] == stays
    agrees(model, small, x, torch.randn(2, 5, 4))


def test_a_sum_over_units_does_not_miss_zeros() -> None:
    torch.manual_seed(0)
    model = Around(lambda h: h * h.sum(-1, keepdim=True).sigmoid())
    kill(model.first, 1, 2)
    small = shrink(model, torch.randn(2, 4))
    assert small.first.out_features == 4
    agrees(model, small, torch.randn(3, 4))


class ResponseNorm(nn.Module):
    """The norm of ConvNeXt-V2, which divides by a mean over channels."""

    def forward(self, h: Tensor) -> Tensor:
        size = h.pow(2).sum(1, keepdim=True).sqrt()
        return h + h * (size / (size.mean(-1, keepdim=True) + 1e-6))


def test_a_graph_restores_the_divisor_of_a_mean_over_units() -> None:
    torch.manual_seed(0)
    model = Around(ResponseNorm())
    kill(model.first, 1, 2)
    x = torch.randn(2, 5, 4)
    with pytest.warns(GraphFormWarning):
        graph = shrink(model, x)
    assert graph.get_parameter("first.weight").shape[0] == 4
    agrees(model, graph, x, torch.randn(2, 5, 4))
    assert plan(model, x, form="module").empty


class ShiftedResponseNorm(ResponseNorm):
    """With the shift that it has after training: a channel of zeros becomes another constant."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.randn(6))

    def forward(self, h: Tensor) -> Tensor:
        return super().forward(h) + self.shift


def test_constants_behind_a_mean_over_units_fold() -> None:
    torch.manual_seed(0)
    model = Around(ShiftedResponseNorm())
    kill(model.first, 1, 2)
    x = torch.randn(2, 5, 4)
    graph = shrink(model, x, form="graph")
    assert graph.get_parameter("first.weight").shape[0] == 4
    agrees(model, graph, x, torch.randn(3, 7, 4))


class Branch(nn.Module):
    def __init__(self, close: str) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 1)
        self.up, self.norm, self.down = nn.Conv2d(6, 8, 3, padding=1), nn.BatchNorm2d(6), nn.Conv2d(8, 6, 1)
        self.scale = nn.Parameter(torch.randn(() if close == "scalar" else (6, 1, 1)))
        self.head = nn.Conv2d(6, 2, 1)
        with torch.no_grad():
            (self.norm.weight if close == "norm" else self.scale).zero_()
            self.norm.bias.normal_()

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        return self.head(x + self.scale * self.norm(self.down(torch.relu(self.up(x)))))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("close", ["scalar", "vector", "norm"])
def test_a_closed_residual_branch_goes(close: str, training: bool) -> None:
    torch.manual_seed(0)
    model = Branch(close).train(training)
    x = torch.randn(2, 3, 5, 5)
    expected = model(x).detach()
    if training:
        shrink_(model, x)
        small: nn.Module = model
    else:
        small = shrink(model, x)
    assert (small.up.out_channels, small.down.in_channels, small.stem.out_channels) == (1, 1, 6)  # type: ignore[union-attr]
    torch.testing.assert_close(small(x), expected, rtol=1e-4, atol=1e-5)


def test_half_of_a_branch_is_closed() -> None:
    torch.manual_seed(0)
    model = Branch("vector").eval()
    with torch.no_grad():
        model.scale[3:] = 1.0
        model.down.weight[3:, 4:] = 0  # what stays open reads four units
    x = torch.randn(2, 3, 5, 5)
    small = shrink(model, x)
    assert (small.up.out_channels, small.down.out_channels) == (4, 6)
    agrees(model, small, x)


class Unrolled(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.cell, self.head = kind(4, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        state = None
        for step in range(3):
            state = self.cell(x[:, step], state)
        return self.head(state[0] if isinstance(state, tuple) else state)


@pytest.mark.parametrize("form", ["module", "graph"])
@pytest.mark.parametrize(("kind", "gates"), [(nn.LSTMCell, 4), (nn.GRUCell, 3), (nn.RNNCell, 1)])
def test_recurrent_cells_lose_hidden_units(kind: type[nn.Module], gates: int, form: str) -> None:
    torch.manual_seed(0)
    model = Unrolled(kind)
    with torch.no_grad():
        for parameter in model.cell.parameters():
            candidate = parameter.view(gates, 6, *parameter.shape[1:])[min(2, gates - 1)]
            candidate[[1, 3]] = 0  # these units stay at zero
        model.head.weight[:, 5] = 0
        model.cell.weight_hh[:, 5] = 0  # and nobody reads this one
    x = torch.randn(2, 3, 4)
    small = shrink(model, x, form=form)  # type: ignore[arg-type]
    assert small.get_parameter("cell.weight_hh").shape == (3 * gates, 3)
    agrees(model, small, x, torch.randn(2, 3, 4))


class Started(Unrolled):
    """Begins with a state whose size is an attribute."""

    def __init__(self, start: Callable[[Tensor, int], Tensor]) -> None:
        super().__init__(nn.GRUCell)
        self.hidden, self.start = 6, start

    def forward(self, x: Tensor) -> Tensor:
        state = self.start(x, self.hidden)
        for step in range(3):
            state = self.cell(x[:, step], state)
        return self.head(state)


STARTS: list[Callable[[Tensor, int], Tensor]] = [
    lambda x, size: torch.zeros(x.shape[0], size),
    lambda x, size: torch.zeros(size=(x.shape[0], size)),
    lambda x, size: torch.full((x.shape[0], size), 0.5),
    lambda x, size: x.new_zeros(x.shape[0], size),
    lambda x, size: x.new_ones((x.shape[0], size)),
]


@pytest.mark.parametrize("form", ["module", "graph"])
@pytest.mark.parametrize("start", STARTS)
def test_the_initial_state_of_a_cell_shrinks_too(start: Callable[[Tensor, int], Tensor], form: str) -> None:
    torch.manual_seed(0)
    model = Started(start)
    with torch.no_grad():
        model.head.weight[:, 4:], model.cell.weight_hh[:, 4:] = 0, 0
    x = torch.randn(2, 3, 4)
    small = shrink(model, x, form=form)  # type: ignore[arg-type]
    assert small.get_parameter("cell.weight_hh").shape == (12, 4)
    agrees(model, small, x, torch.randn(5, 3, 4))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bags_lose_columns(mode: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.EmbeddingBag(9, 6, mode=mode), nn.ReLU(), nn.Linear(6, 3))
    with torch.no_grad():
        model[0].weight[:, 1] = 0
        model[2].weight[:, 4] = 0
    x = torch.randint(0, 9, (2, 5))
    small = shrink(model, x)
    assert small[0].embedding_dim == 4
    agrees(model, small, x, torch.randint(0, 9, (3, 2)))


class Bags(nn.Module):
    """Bags of different sizes, which begin and end at offsets."""

    def __init__(self) -> None:
        super().__init__()
        self.bags, self.last = nn.EmbeddingBag(9, 6, mode="sum", include_last_offset=True), nn.Linear(6, 3)

    def forward(self, words: Tensor, offsets: Tensor) -> Tensor:
        return self.last(self.bags(words, offsets))


@pytest.mark.parametrize("form", ["module", "graph"])
def test_offsets_of_bags_stay_in_order(form: str) -> None:
    torch.manual_seed(0)
    model = Bags()
    with torch.no_grad():
        model.last.weight[:, 1:3] = 0
    call = torch.randint(9, (10,)), torch.tensor([0, 3, 10])
    small = shrink(model, call, form=form)  # type: ignore[arg-type]  # with offsets out of order the process crashes
    assert small.get_parameter("bags.weight").shape == (9, 4)
    torch.testing.assert_close(small(*call), model(*call))


class Standardised(nn.Conv2d):
    """The convolution of NF-ResNets and BiT."""

    def forward(self, x: Tensor) -> Tensor:
        rows = F.batch_norm(self.weight.reshape(1, self.out_channels, -1), None, None, training=True, momentum=0.0)
        return F.conv2d(x, rows.reshape_as(self.weight), self.bias, self.stride, self.padding)


@pytest.mark.parametrize("form", ["module", "graph"])
def test_standardised_weights_lose_outputs_and_keep_inputs(form: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Standardised(3, 6, 3), nn.ReLU(), Standardised(6, 5, 3), nn.ReLU(), nn.Conv2d(5, 2, 1))
    kill(model[2], 1, 3)  # type: ignore[arg-type]
    kill(model[0], 2)  # type: ignore[arg-type]
    x = torch.randn(2, 3, 7, 7)
    small = shrink(model, x, form=form)  # type: ignore[arg-type]
    assert small.get_parameter("2.weight").shape[:2] == (3, 6)
    agrees(model, small, x)


@pytest.mark.parametrize("form", ["module", "graph"])
def test_weight_norm(form: str) -> None:
    torch.manual_seed(0)
    first, second = (weight_norm(nn.Conv1d(*sizes)) for sizes in ((3, 6, 3), (6, 5, 3)))
    model = nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), weight_norm(nn.Linear(9, 2)))
    with torch.no_grad():
        second.parametrizations.weight.original1[:, [1, 2]] = 0  # nobody reads these
        second.parametrizations.weight.original0[3] = 0  # a unit that is its bias
        second.bias[3] = 0
    x = torch.randn(2, 3, 13)
    small = shrink(model, x, form=form)  # type: ignore[arg-type]
    assert small.get_parameter("0.parametrizations.weight.original1").shape == (4, 3, 3)
    assert small.get_parameter("2.parametrizations.weight.original1").shape[1] == 4
    agrees(model, small, x, torch.randn(3, 3, 13))


@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated:FutureWarning")
@pytest.mark.parametrize("in_place", [False, True])
def test_weight_norm_by_a_hook(in_place: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.utils.weight_norm(nn.Linear(5, 8)), nn.ReLU(), nn.Linear(8, 3))
    with torch.no_grad():
        model[0].weight_g[2:5], model[0].bias[2:5] = 0, 0
    x = torch.randn(4, 5)
    expected = model(x)  # which leaves a weight that is no leaf of autograd, so it cannot be copied
    if in_place:
        shrink_(model, x)
    small = model if in_place else shrink(model, x)
    assert (small[0].weight_v.shape, small[2].weight.shape) == ((5, 5), (3, 5))
    torch.testing.assert_close(small(x), expected)


class Conv1D(nn.Module):
    """The linear layer of GPT-2 in transformers: inputs by outputs, with the number of outputs as an attribute."""

    def __init__(self, outputs: int, inputs: int) -> None:
        super().__init__()
        self.nf = outputs
        self.weight, self.bias = nn.Parameter(torch.randn(inputs, outputs)), nn.Parameter(torch.randn(outputs))

    def forward(self, x: Tensor) -> Tensor:
        flat = torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight)
        return flat.view((*x.size()[:-1], self.nf))


def test_transposed_linear_layers_lose_outputs_and_fold_constants() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Conv1D(6, 4), nn.ReLU(), Conv1D(3, 6))
    with torch.no_grad():
        model[0].weight[:, 1:4], model[0].bias[1:4] = 0, torch.tensor([0.0, -1.0, 0.5])
    small = shrink(model, torch.randn(2, 5, 4))
    assert (small[0].nf, small[0].weight.shape, small[2].weight.shape) == (3, (4, 3), (3, 3))
    agrees(model, small, torch.randn(2, 5, 4), torch.randn(3, 7, 4))


class InPlace(nn.Module):
    """As in DLA: a sum in place, of which one operand is used again."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = (nn.Conv2d(*sizes, 1) for sizes in ((3, 6), (6, 6), (12, 2)))
        self.norms = nn.ModuleList(nn.BatchNorm2d(6) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        a = F.relu_(self.norms[0](self.first(x)))
        b = self.norms[1](self.second(a))
        b += a
        return self.last(torch.cat([F.relu_(b), a], 1))


def test_sums_in_place_keep_the_layers_of_the_graph() -> None:
    torch.manual_seed(0)
    model = InPlace().eval()
    kill(model.first, 1, 2)
    kill(model.second, 1, 2)
    x = torch.randn(2, 3, 4, 4)
    small = shrink(model, x)
    assert (small.first.out_channels, small.second.out_channels) == (4, 4)
    agrees(model, small, x)
