"""Single rules: what goes and what stays for each kind of layer."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from gossamer.shrinking import plan, shrink

from .blocks import Grouped, InvertedBottleneck, Recurrent, Shuffle, UShape


def agrees(full: nn.Module, small: nn.Module, x: Tensor) -> None:
    torch.testing.assert_close(small.eval()(x), full.eval()(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "shape"), [(nn.Conv1d, (2, 3, 9)), (nn.Conv2d, (2, 3, 6, 6)), (nn.Conv3d, (2, 3, 4, 4, 4))]
)
def test_convolutions_of_all_ranks(kind: type[nn.Module], shape: tuple[int, ...]) -> None:
    model = nn.Sequential(kind(3, 6, 3), nn.ReLU(), kind(6, 2, 1))
    with torch.no_grad():
        model[0].weight[[1, 4]] = 0
    small = shrink(model, torch.randn(shape))
    assert small[0].out_channels == 4
    agrees(model, small, torch.randn(shape))


@pytest.mark.parametrize(("kind", "shape"), [(nn.ConvTranspose1d, (2, 3, 5)), (nn.ConvTranspose2d, (2, 3, 4, 4))])
def test_transposed_convolutions(kind: type[nn.Module], shape: tuple[int, ...]) -> None:
    model = nn.Sequential(kind(3, 6, 3, stride=2), nn.ReLU(), kind(6, 4, 2, groups=2))
    with torch.no_grad():
        model[0].weight[:, [1, 4]] = 0
        model[0].bias[[1, 4]] = 0
    small = shrink(model, torch.randn(shape))
    assert small[0].out_channels == 4
    assert small[2].groups == 2
    agrees(model, small, torch.randn(shape))


def test_depthwise_convolution_follows_its_channels() -> None:
    model = InvertedBottleneck(4, 8, squeeze=True)
    with torch.no_grad():
        model.project.weight[:, [0, 5]] = 0
        model.squeeze.reduce.weight[:, [0, 5]] = 0
    small = shrink(model, torch.randn(2, 4, 6, 6))
    assert (small.depthwise.groups, small.depthwise.out_channels, small.norm.num_features) == (6, 6, 6)
    agrees(model, small, torch.randn(3, 4, 6, 6))


def test_grouped_convolution_keeps_groups_equal() -> None:
    model = Grouped(4, 3, 4)
    with torch.no_grad():
        model.after.weight[:, [0, 4, 5, 6, 7, 10]] = (
            0  # one unit of the first group, all of the second, one of the last
        )
        model.grouped.weight[:, 0] = 0  # and the first input of each group
    small = shrink(model, torch.randn(2, 4, 6, 6))
    assert small.grouped.groups == 2
    assert small.grouped.weight.shape == (6, 3, 3, 3)
    agrees(model, small, torch.randn(2, 4, 6, 6))


def test_group_norm_loses_whole_groups() -> None:
    model = nn.Sequential(nn.Conv2d(2, 8, 1), nn.GroupNorm(4, 8), nn.Conv2d(8, 3, 1))
    with torch.no_grad():
        model[2].weight[:, [2, 3, 4]] = 0
    small = shrink(model, torch.randn(2, 2, 5, 5))
    assert (small[1].num_groups, small[1].num_channels) == (3, 6)
    agrees(model, small, torch.randn(2, 2, 5, 5))


@pytest.mark.parametrize("norm", [nn.LayerNorm(6), nn.RMSNorm(6)])
def test_norms_over_units_need_all_of_them(norm: nn.Module) -> None:
    model = nn.Sequential(nn.Linear(3, 6), norm, nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))
    with torch.no_grad():
        model[0].weight[1] = 0
        model[2].weight[:, 1] = 0
        model[2].weight[3] = 0
    small = shrink(model, torch.randn(2, 3))
    assert (small[0].out_features, small[2].out_features) == (6, 4)
    assert "statistics" in str(plan(model, torch.randn(2, 3)))
    agrees(model, small, torch.randn(4, 3))


def test_a_norm_scale_of_zero_cuts_a_channel() -> None:
    model = nn.Sequential(nn.Conv2d(2, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 3, 1))
    with torch.no_grad():
        model[1].weight[[0, 3]] = 0
        model[1].bias.fill_(0.5)
    small = shrink(model, torch.randn(2, 2, 5, 5))
    assert small[0].out_channels == 4
    agrees(model, small, torch.randn(2, 2, 5, 5))


@pytest.mark.parametrize("gru", [True, False])
@pytest.mark.parametrize("both", [True, False])
def test_recurrent_units_go(gru: bool, both: bool) -> None:
    torch.manual_seed(0)
    model = Recurrent(4, 6, gru=gru, both=both)
    with torch.no_grad():
        for name, parameter in model.cell.named_parameters():
            gates = parameter.view(3 if gru else 4, 6, *parameter.shape[1:])
            gates[2, [1, 3]] = 0
            del name
    x = torch.randn(2, 5, 4)
    small = shrink(model, x)
    assert small.cell.hidden_size == 4
    agrees(model, small, x)
    graph = shrink(model, x, form="graph")
    agrees(model, graph, torch.randn(7, 5, 4))


def test_shuffled_channels_go_in_step() -> None:
    torch.manual_seed(0)
    model = Shuffle(5)
    with torch.no_grad():
        for layer in (model.left, model.right):
            layer.weight[1] = 0
            layer.bias[1] = 0
    small = shrink(model, torch.randn(2, 5, 4, 4), form="graph")
    assert [small.get_parameter(f"{name}.weight").shape[0] for name in ("left", "right")] == [3, 3]
    assert small.get_parameter("after.weight").shape[1] == 6
    agrees(model, small, torch.randn(2, 5, 4, 4))


def test_u_shape_drops_on_both_sides_of_the_concatenation() -> None:
    model = UShape(4, 6)
    with torch.no_grad():
        model.merge.weight[:, [5, 7]] = 0
        model.down.weight[2] = 0
        model.down.bias[2] = -1.0
    small = shrink(model, torch.randn(2, 4, 8, 8))
    assert (small.down.out_channels, small.up.out_channels, small.merge.in_channels) == (5, 4, 8)
    agrees(model, small, torch.randn(2, 4, 8, 8))


def test_a_gate_for_all_channels_ties_none_of_them() -> None:
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features, self.gate, self.head = nn.Linear(3, 6), nn.Linear(3, 1), nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.features(x) * torch.sigmoid(self.gate(x)))

    model = Gated()
    with torch.no_grad():
        model.head.weight[:, [1, 4]] = 0
    small = shrink(model, torch.randn(2, 3))
    assert (small.features.out_features, small.gate.out_features) == (4, 1)
    agrees(model, small, torch.randn(2, 3))
