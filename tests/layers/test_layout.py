"""Layouts, by what they claim: a zero output group silences its unit, a zero input group makes its unit unread."""

import pytest
import torch
from torch import nn

from gossamer import GossamerError
from gossamer.layers import layouts, require_groups

LAYERS = {
    "linear": (lambda: nn.Linear(6, 4, bias=False), (3, 6), -1),
    "conv1d": (lambda: nn.Conv1d(6, 4, 3, bias=False), (2, 6, 9), 1),
    "conv2d": (lambda: nn.Conv2d(6, 4, (3, 2), padding=1, bias=False), (2, 6, 7, 7), 1),
    "conv2d grouped": (lambda: nn.Conv2d(6, 4, 3, groups=2, bias=False), (2, 6, 7, 7), 1),
    "conv2d depthwise": (lambda: nn.Conv2d(6, 12, 3, groups=6, bias=False), (2, 6, 7, 7), 1),
    "conv3d": (lambda: nn.Conv3d(6, 4, 2, bias=False), (2, 6, 4, 4, 4), 1),
    "transposed 1d": (lambda: nn.ConvTranspose1d(6, 4, 3, bias=False), (2, 6, 5), 1),
    "transposed 2d": (lambda: nn.ConvTranspose2d(6, 4, 3, stride=2, bias=False), (2, 6, 5, 5), 1),
    "transposed 2d grouped": (lambda: nn.ConvTranspose2d(6, 4, 3, groups=2, bias=False), (2, 6, 5, 5), 1),
    "transposed 3d": (lambda: nn.ConvTranspose3d(6, 4, 2, bias=False), (2, 6, 3, 3, 3), 1),
}


def zero_group(layer, attribute, groups, index):
    weight = layer.get_parameter(attribute)
    layout = layouts(layer)[attribute]
    grouped = layout.as_groups(weight.detach(), groups).clone()
    grouped[index] = 0.0
    with torch.no_grad():
        weight.copy_(layout.from_groups(grouped, groups, weight.shape))


@pytest.mark.parametrize("kind", LAYERS)
def test_output_groups_are_output_units(kind):
    make, shape, channel = LAYERS[kind]
    layer, x = make(), torch.randn(shape)
    units = layer(x).shape[channel]
    assert layouts(layer)["weight"].count("outputs") == units
    for unit in range(units):
        fresh = make()
        zero_group(fresh, "weight", "outputs", unit)
        silent = fresh(x).movedim(channel, 0).abs().flatten(1).sum(-1) == 0
        assert silent.nonzero().flatten().tolist() == [unit]


@pytest.mark.parametrize("kind", LAYERS)
def test_input_groups_are_input_units(kind):
    make, shape, channel = LAYERS[kind]
    x = torch.randn(shape)
    units = x.shape[channel]
    assert layouts(make())["weight"].count("inputs") == units
    for unit in range(units):
        layer = make()
        zero_group(layer, "weight", "inputs", unit)
        other = x.clone().movedim(channel, 0)
        other[unit] += 1.0
        assert torch.equal(layer(x), layer(other.movedim(0, channel)))


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("groups", ["outputs", "inputs", "taps"])
def test_from_groups_inverts_as_groups(kind, groups):
    layer = LAYERS[kind][0]()
    layout, weight = layouts(layer)["weight"], layer.weight.detach()
    grouped = layout.as_groups(weight, groups)
    assert grouped.shape == (layout.count(groups), layout.group_size(groups))
    assert torch.equal(layout.from_groups(grouped, groups, weight.shape), weight)


def test_taps_of_a_convolution_hold_the_output_channels_of_one_place():
    conv = nn.Conv2d(3, 8, 5)
    grouped = layouts(conv)["weight"].as_groups(conv.weight.detach(), "taps")
    assert grouped.shape == (3 * 25, 8)
    assert torch.equal(grouped[1 * 25 + 2 * 5 + 4], conv.weight[:, 1, 2, 4])


def test_embedding_rows_are_inputs_and_columns_outputs():
    embedding = nn.Embedding(7, 3)
    layout = layouts(embedding)["weight"]
    assert (layout.count("inputs"), layout.count("outputs")) == (7, 3)
    assert torch.equal(layout.as_groups(embedding.weight.detach(), "outputs")[2], embedding.weight[:, 2])


@pytest.mark.parametrize(
    ("make", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1), (nn.LSTMCell, 4), (nn.GRUCell, 3), (nn.RNNCell, 1)]
)
def test_a_recurrent_unit_holds_all_its_gates(make, gates):
    cell = make(5, 6, bias=False)
    names = list(layouts(cell))
    assert len(names) == 2
    for name in names:
        layout = layouts(cell)[name]
        assert layout.count("outputs") == 6
        assert layout.group_size("outputs") == gates * cell.get_parameter(name).shape[1]
        zero_group(cell, name, "outputs", 2)
    hidden = cell(torch.randn(4, 5))
    hidden = hidden[0] if isinstance(hidden, tuple) else hidden
    dead = hidden[:, 2]
    # a GRU keeps half of its state (its update gate is at 1/2), which is zero from the start
    assert torch.equal(dead, torch.zeros_like(dead))
    assert (hidden[:, [0, 1, 3, 4, 5]] != 0).all()


def test_lstm_with_projection_and_layers():
    lstm = nn.LSTM(5, 6, num_layers=2, bidirectional=True, proj_size=3)
    found = layouts(lstm)
    assert {name for name in found if name.startswith("weight_hr")} == {
        "weight_hr_l0", "weight_hr_l0_reverse", "weight_hr_l1", "weight_hr_l1_reverse",
    }  # fmt: skip
    assert found["weight_hr_l0"].count("outputs") == 3
    assert found["weight_ih_l1"].count("inputs") == 6
    assert not any("bias" in name for name in found)


def test_attention_weights():
    assert set(layouts(nn.MultiheadAttention(8, 2))) == {"in_proj_weight", "out_proj.weight"}
    assert set(layouts(nn.MultiheadAttention(8, 2, kdim=4, vdim=6))) == {
        "q_proj_weight", "k_proj_weight", "v_proj_weight", "out_proj.weight",
    }  # fmt: skip


def test_norms_have_no_weights_to_regularize():
    assert layouts(nn.BatchNorm2d(4)) == {}
    assert layouts(nn.LayerNorm(4)) == {}


def test_unknown_groups():
    with pytest.raises(GossamerError, match="'rows'"):
        require_groups("rows")
