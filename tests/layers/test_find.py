import pytest
import torch
from torch import nn

from gossamer import GossamerError
from gossamer.layers import find_weights, require_supported


class Backwards(nn.Module):
    """Defines its layers in the opposite order of running them."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(8, 2)
        self.middle = nn.Linear(8, 8)
        self.first = nn.Linear(4, 8)

    def forward(self, x):
        self.seen = self.middle(self.first(x).relu()).relu()
        return self.last(self.seen)


class Untraceable(Backwards):
    def forward(self, x):
        return super().forward(x) if x.sum() > 0 else super().forward(-x)


def names(weights):
    return [weight.name for weight in weights]


@pytest.mark.parametrize("example", [None, torch.randn(1, 4)])
def test_order_of_execution(example):
    model = Backwards()
    assert names(find_weights(model, example)) == ["first.weight", "middle.weight", "last.weight"]


def test_a_symbolic_trace_leaves_nothing_behind():
    model = Backwards()
    find_weights(model)
    assert not hasattr(model, "seen")


def test_what_cannot_be_traced_comes_in_order_of_definition_unless_there_is_an_example():
    model = Untraceable()
    assert names(find_weights(model)) == ["last.weight", "middle.weight", "first.weight"]
    assert names(find_weights(model, torch.ones(1, 4)))[0] == "first.weight"


def test_tied_weights_come_once():
    model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5, bias=False))
    model[1].weight = model[0].weight
    assert names(find_weights(model)) == ["0.weight"]


def test_attention_is_found_with_its_output_projection_once():
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    example = torch.randn(1, 3, 8)
    assert names(find_weights(model, example)) == [
        "self_attn.in_proj_weight", "self_attn.out_proj.weight", "linear1.weight", "linear2.weight",
    ]  # fmt: skip


def test_a_compiled_model_is_the_model():
    model = Backwards()
    assert names(find_weights(torch.compile(model))) == names(find_weights(model))


def test_a_layer_is_a_model_too():
    assert names(find_weights(nn.Linear(2, 2))) == ["weight"]


def test_no_weight_layers():
    with pytest.raises(GossamerError, match="no weight layers"):
        find_weights(nn.Sequential(nn.ReLU(), nn.BatchNorm1d(3)))


def test_a_parametrized_weight():
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)))
    (weight,) = find_weights(model)
    with pytest.raises(GossamerError, match="parametrization"):
        require_supported(weight)


def test_a_lazy_weight():
    with pytest.raises(GossamerError, match="not initialised"):
        find_weights(nn.Sequential(nn.LazyLinear(3)))


def test_complex_weights():
    (weight,) = find_weights(nn.Linear(2, 2, dtype=torch.complex64))
    with pytest.raises(GossamerError, match="complex64"):
        require_supported(weight)


def test_an_example_that_does_not_fit():
    with pytest.raises(GossamerError, match="fails on `example`"):
        find_weights(Backwards(), torch.randn(1, 5))
