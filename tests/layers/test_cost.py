"""Multiply-adds, against the counter that PyTorch ships."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from gossamer.layers import multiply_adds


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.hidden = nn.Linear(6, 6)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.hidden(self.hidden(self.embedding(tokens))))


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3)), torch.randn(4, 5)),
    "linear on sequences": (lambda: nn.Linear(5, 7), torch.randn(4, 3, 5)),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, stride=2, padding=1), torch.randn(2, 4, 11)),
    "conv2d": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 4, 3, dilation=2)),
        torch.randn(2, 3, 9, 9),
    ),
    "grouped": (lambda: nn.Conv2d(4, 8, 3, groups=2), torch.randn(2, 4, 9, 9)),
    "depthwise": (lambda: nn.Conv2d(4, 4, 3, groups=4), torch.randn(2, 4, 9, 9)),
    "conv3d": (lambda: nn.Conv3d(2, 3, 2), torch.randn(1, 2, 4, 4, 4)),
    "transposed": (lambda: nn.ConvTranspose2d(4, 6, 3, stride=2), torch.randn(2, 4, 5, 5)),
    "tied, and called twice": (Tied, torch.randint(0, 11, (2, 5))),
}


@pytest.mark.parametrize("kind", MODELS)
def test_dense_multiply_adds_are_those_of_the_flop_counter(kind):
    make, example = MODELS[kind]
    model = make()
    with FlopCounterMode(display=False) as counter:
        model(example)
    assert 2 * sum(multiply_adds(model, example).values()) == counter.get_total_flops()


@pytest.mark.parametrize("cross", [False, True])
def test_attention_counts_its_projections(cross):
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    query, memory = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    key = memory if cross else query
    # The projections alone: what the counter says of the linear operations, not of the attention product.
    with FlopCounterMode(display=False) as counter:
        attention(query, key, key, need_weights=False)
    linear = sum(n for op, n in counter.get_flop_counts()["Global"].items() if "mm" in str(op) and "bmm" not in str(op))
    assert 2 * sum(multiply_adds(attention, (query, key, key)).values()) == linear


def test_recurrent_weights_are_used_once_a_token():
    lstm = nn.LSTM(5, 6, num_layers=2, batch_first=True)
    macs = multiply_adds(lstm, torch.randn(3, 7, 5))
    assert sum(macs.values()) == 3 * 7 * sum(p.numel() for n, p in lstm.named_parameters() if n.startswith("weight"))
    packed = nn.utils.rnn.pack_sequence([torch.randn(4, 5), torch.randn(2, 5)])
    assert multiply_adds(lstm, [packed])[lstm.weight_ih_l0] == 6 * 24 * 5


def test_the_older_convention_costs_convolutions_without_their_padding():
    """The costs in the published code of combined group and exclusive sparsity, for its own network."""
    model = nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5, padding=2), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(3136, 1024), nn.Linear(1024, 10),
    )  # fmt: skip
    example = torch.zeros(1, 1, 28, 28)
    assert list(multiply_adds(model, example, "cges").values()) == [460_800, 5_120_000, 3_211_264, 10_240]
    assert list(multiply_adds(model, example).values()) == [627_200, 10_035_200, 3_211_264, 10_240]


def test_the_model_is_left_as_it_was():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout())
    model[2].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    multiply_adds(model, torch.randn(4, 3))
    assert [m.training for m in model.modules()] == [True, True, True, False]
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not model[0]._forward_hooks


def test_keyword_examples():
    assert multiply_adds(nn.Linear(3, 2), {"input": torch.randn(5, 3)})
