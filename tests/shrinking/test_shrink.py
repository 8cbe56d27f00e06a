from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from gossamer.shrinking import GraphFormWarning, plan, shrink, shrink_
from gossamer.shrinking.apply import Reference


def agrees(full: nn.Module, small: nn.Module, *inputs: Tensor) -> None:
    torch.testing.assert_close(small.eval()(*inputs), full.eval()(*inputs), rtol=1e-5, atol=1e-6)


def zero_rows(layer: nn.Module, *rows: int, bias: bool = False) -> None:
    with torch.no_grad():
        layer.weight[list(rows)] = 0
        if bias:
            layer.bias[list(rows)] = 0


class HardCoded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3)
        self.hidden = nn.Linear(6 * 16, 5)
        self.head = nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.conv(x)).view(-1, 96)
        return self.head(torch.relu(self.hidden(x)))


@pytest.fixture
def hard_coded() -> HardCoded:
    torch.manual_seed(0)
    model = HardCoded()
    zero_rows(model.conv, 1, 2, bias=True)
    zero_rows(model.hidden, 0)
    return model


def test_a_dense_model_comes_back_unchanged() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    found = plan(model, torch.randn(1, 3))
    assert found.empty
    assert "Nothing to remove" in str(found)
    small = shrink(model, torch.randn(1, 3))
    assert small is not model
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), small.parameters(), strict=True))


def test_shrinking_twice_changes_nothing(hard_coded: HardCoded) -> None:
    x = torch.randn(2, 1, 6, 6)
    once = shrink(hard_coded, x, form="module")
    assert plan(once, x, form="module").empty
    assert not plan(hard_coded, x, form="module").empty


def test_the_original_is_untouched(hard_coded: HardCoded) -> None:
    before = copy.deepcopy(hard_coded.state_dict())
    hard_coded.train()
    small = shrink(hard_coded, torch.randn(2, 1, 6, 6), form="module")
    assert hard_coded.training
    assert small.training
    assert all(torch.equal(before[name], tensor) for name, tensor in hard_coded.state_dict().items())
    small.head.weight.data.zero_()
    assert not torch.equal(hard_coded.head.weight, torch.zeros(2, 5))


def test_module_form_keeps_what_forward_counts(hard_coded: HardCoded) -> None:
    x = torch.randn(2, 1, 6, 6)
    small = shrink(hard_coded, x, form="module")
    assert isinstance(small, HardCoded)
    assert (small.conv.out_channels, small.hidden.out_features) == (6, 4)
    agrees(hard_coded, small, x)
    reasons = [reason for row in plan(hard_coded, x, form="module").channels for reason in row.reasons]
    assert "its size is hard-coded in forward" in reasons


class Block(nn.Module):
    """A layer of the user's, which fails because of what it is called with."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.layer(x))


class Halves(nn.Module):
    """Splits at a number that is hard-coded; the layers after that fail, and count nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.both, self.left, self.right = Block(4, 6), Block(3, 5), Block(3, 5)

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.both(x).split(3, dim=-1)
        return self.left(a) + self.right(b)


def test_the_module_that_calls_the_one_that_fails_is_to_blame(monkeypatch: pytest.MonkeyPatch) -> None:
    verified, matches = [], Reference.matches
    monkeypatch.setattr(Reference, "matches", lambda *args: verified.append(args) or matches(*args))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), Halves(), Block(5, 4), nn.Linear(4, 2)).eval()
    with torch.no_grad():
        for layer in (model[1].both.layer, model[2].layer):
            layer.weight[1], layer.bias[1] = 0, 0
    x = torch.randn(2, 3)
    found = plan(model, x, form="module")
    small = found.apply()
    assert (small[1].both.layer.out_features, small[2].layer.out_features) == (6, 3)
    assert "its size is hard-coded in forward" in str(found)
    assert len(verified) == 2
    agrees(model, small, x)


def test_auto_form_returns_the_graph_and_says_so(hard_coded: HardCoded) -> None:
    with pytest.warns(GraphFormWarning, match="sizes hard-coded"):
        small = shrink(hard_coded, torch.randn(1, 1, 6, 6))
    assert isinstance(small, torch.fx.GraphModule)
    assert small.get_parameter("conv.weight").shape[0] == 4
    agrees(hard_coded, small, torch.randn(7, 1, 6, 6))


def test_graph_form_keeps_the_batch_free(hard_coded: HardCoded) -> None:
    small = shrink(hard_coded, torch.randn(1, 1, 6, 6), form="graph")
    for batch in (1, 2, 5):
        agrees(hard_coded, small, torch.randn(batch, 1, 6, 6))


def test_constants_fold_into_a_new_bias() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.Sigmoid(), nn.Linear(5, 4, bias=False), nn.Linear(4, 2))
    zero_rows(model[0], 1, 3)
    x = torch.randn(4, 3)
    for form in ("module", "graph"):
        small = shrink(model, x, form=form)
        assert small.get_parameter("2.bias").shape == (4,)
        assert small.get_parameter("0.weight").shape == (3, 3)
        agrees(model, small, x)


def test_constants_travel_through_several_layers() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    zero_rows(model[0], 1)
    with torch.no_grad():
        model[2].weight[2, [0, 2, 3]] = 0
    small = shrink(model, torch.randn(4, 3))
    assert (small[0].out_features, small[2].out_features) == (3, 3)
    agrees(model, small, torch.randn(4, 3))


def test_a_padded_convolution_keeps_a_constant_and_says_why() -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 1), nn.Conv2d(4, 2, 3, padding=1))
    zero_rows(model[0], 1)
    found = plan(model, torch.randn(1, 1, 5, 5))
    assert found.empty
    assert "pads" in str(found)
    zero_rows(model[0], 1, bias=True)
    assert shrink(model, torch.randn(1, 1, 5, 5))[0].out_channels == 3


def test_a_dead_layer_keeps_one_unit() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    zero_rows(model[2], 0, 1)
    found = plan(model, torch.randn(1, 3))
    assert "every layer keeps at least one unit" in str(found)
    small = shrink(model, torch.randn(1, 3))
    assert small[0].out_features == 1
    agrees(model, small, torch.randn(4, 3))


@pytest.mark.parametrize("kind", ["tuple", "dict"])
def test_examples_of_several_inputs(kind: str) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Linear(3, 4), nn.Linear(2, 4)
            self.head = nn.Linear(4, 1)

        def forward(self, a: Tensor, b: Tensor) -> dict[str, Tensor]:
            return {"score": self.head(self.left(a) + self.right(b))}

    model = Two()
    zero_rows(model.left, 1)
    zero_rows(model.right, 1)
    a, b = torch.randn(2, 3), torch.randn(2, 2)
    small = shrink(model, (a, b) if kind == "tuple" else {"b": b, "a": a})
    assert small.head.in_features == 3
    torch.testing.assert_close(small(a, b), model(a, b))


def test_shared_weights_stay_shared() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(9, 6)
            self.mix = nn.Linear(6, 6)
            self.head = nn.Linear(6, 9, bias=False)
            self.head.weight = self.table.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.head(torch.relu(self.mix(self.table(x))))

    model = Tied()
    with torch.no_grad():
        model.table.weight[:, 2] = 0
        model.mix.weight[2] = 0
        model.mix.bias[2] = 0
    x = torch.randint(0, 9, (2, 4))
    small = shrink(model, x)
    assert small.head.weight is small.table.weight
    assert small.table.embedding_dim == 5
    agrees(model, small, x)


def test_in_place_keeps_buffers_in_the_state_dict() -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 1, bias=False), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 1)).eval()
    zero_rows(model[0], 3)
    x = torch.randn(2, 1, 4, 4)
    expected = model(x)
    shrink_(model, x)
    assert model.state_dict()["1.running_mean"].shape == (3,)
    assert model[1].num_features == 3
    torch.testing.assert_close(model(x), expected)
