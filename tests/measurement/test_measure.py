import json

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import gossamer
from gossamer import GossamerError


def lenet():
    torch.manual_seed(0)  # one of so many weights is drawn as exactly zero once in forty times
    return nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10),
    )  # fmt: skip


EXAMPLE = torch.zeros(1, 1, 28, 28)


def test_a_dense_model_is_all_there():
    model = lenet()
    result = gossamer.measure(model, EXAMPLE)
    with FlopCounterMode(display=False) as counter:
        model(EXAMPLE)
    assert result.total.weights == result.total.nonzeros == 430_500
    assert result.total.macs == 2_293_000 == counter.get_total_flops() // 2
    assert result.params_kept == result.flops_kept == result.flops_kept_compact == 1.0
    assert [layer.units_alive for layer in result.layers] == [20, 50, 500, 10]


def test_zeros_units_and_what_is_left_after_removal():
    model = lenet()
    with torch.no_grad():
        model[0].weight[5:] = 0  # 15 filters receive nothing
        model[2].weight[:, 5:] = 0  # and are not read
        model[2].weight[10:] = 0
        model[5].weight[:, 3] = 0
    conv1, conv2, fc1, fc2 = gossamer.measure(model, EXAMPLE).layers
    assert (conv1.nonzeros, conv1.units_alive, conv1.macs_nonzero) == (125, 5, 72_000)
    assert (conv2.nonzeros, conv2.units_alive, conv2.units) == (10 * 5 * 25, 10, 50)
    assert conv2.macs_compact == conv2.macs_nonzero == 64 * 10 * 5 * 25
    assert fc1.macs_compact == 500 * 799
    assert fc2.nonzeros == 5000


def test_after_removal_is_what_shrink_leaves():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    with torch.no_grad():
        model[0].weight[0] = 0
    alone, removed = (gossamer.measure(model, torch.zeros(1, 4), removal=removal) for removal in (False, True))
    assert [layer.macs_compact for layer in alone.layers] == [12, 16]
    assert [layer.macs_compact for layer in removed.layers] == [12, 12]
    assert "after shrink" in str(removed)
    assert "after shrink" not in str(alone)


def test_unstructured_zeros_are_not_removable():
    model = nn.Linear(4, 4)
    with torch.no_grad():
        model.weight.copy_(torch.eye(4))
    result = gossamer.measure(model, torch.zeros(1, 4))
    assert result.flops_kept == 0.25
    assert result.flops_kept_compact == 1.0


def test_grouped_convolutions_count_pairs_within_their_blocks():
    conv = nn.Conv2d(4, 4, 1, groups=2)
    with torch.no_grad():
        conv.weight[0] = 0
    result = gossamer.measure(conv, torch.zeros(1, 4, 3, 3))
    assert result.flops_kept_compact == 6 / 8  # the first block keeps 1 x 2 pairs, the second 2 x 2


def test_zero_means_zero():
    model = nn.Linear(2, 1)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1e-38, -0.0]]))
    assert gossamer.measure(model, torch.zeros(1, 2)).total.nonzeros == 1


def test_the_older_convention():
    model = nn.Sequential(nn.Conv2d(1, 32, 5, padding=2), nn.Flatten(), nn.Linear(32 * 784, 10))
    result = gossamer.measure(model, EXAMPLE, convention="cges")
    assert result.layers[0].macs == 460_800
    assert result.convention == "cges"
    with pytest.raises(GossamerError, match="convention"):
        gossamer.measure(model, EXAMPLE, convention="old")


def test_table_and_dict():
    result = gossamer.measure(lenet(), EXAMPLE)
    table = str(result)
    assert "units alive" in table
    assert table.count("\n") == 7
    assert json.loads(json.dumps(result.to_dict()))["total"]["macs"] == 2_293_000


def test_tied_weights_count_once_and_cost_twice():
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    model[1].weight = model[0].weight
    result = gossamer.measure(model, torch.zeros(1, 3))
    assert (result.total.weights, result.total.macs) == (9, 18)


def test_a_bad_example():
    with pytest.raises(GossamerError, match="fails on `example`"):
        gossamer.measure(lenet(), torch.zeros(1, 1, 3, 3))
