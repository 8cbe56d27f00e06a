"""The list of operations that a network becomes: what is fused, what is folded, what is only another look at memory."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from gossamer import GossamerError
from gossamer.example import call_with
from gossamer.inference.lowering import lower
from gossamer.inference.operations.convolution import Convolution
from gossamer.inference.program import Program
from gossamer.inference.tracing import first_sample, trace


class Apply(nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def lowered(model: nn.Module, example: Tensor) -> Program:
    program = lower(trace(model.eval(), first_sample(call_with(model, example))))
    with torch.no_grad():
        torch.testing.assert_close(program.run([example[:1]])[0], model(example[:1]), rtol=1e-5, atol=1e-5)
    return program


def kinds(program: Program) -> list[str]:
    return [type(step.operation).__name__ for step in program.steps]


IMAGE = torch.randn(2, 3, 8, 8)


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.ReLU()),
        nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Dropout(), nn.ReLU(), nn.AvgPool2d(2), nn.Sigmoid()),
        nn.Sequential(nn.ConvTranspose2d(3, 4, 3), nn.BatchNorm2d(4), nn.GELU()),
        nn.Sequential(nn.Conv2d(3, 4, 3), Apply(lambda x: functional.relu(x, inplace=True) if True else x)),
        nn.Sequential(nn.Flatten(), nn.Linear(192, 5), nn.BatchNorm1d(5), nn.Tanh()),
        nn.Sequential(nn.Linear(8, 5), nn.GELU()),
        nn.Sequential(nn.Conv2d(3, 4, 3), Apply(lambda x: x * 2.0 - 1.0)),
    ],
)
def test_what_follows_a_layer_becomes_part_of_it(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            module.running_mean.uniform_(-1, 1)
            module.running_var.uniform_(0.5, 2)
    assert kinds(lowered(model, IMAGE)) == ["Convolution"]


def test_pooling_that_overlaps_stays_by_itself() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2, stride=1), nn.ReLU())
    assert kinds(lowered(model, IMAGE)) == ["Convolution", "Pool", "Pointwise"]


def test_a_value_that_is_read_twice_stays() -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            y = self.conv(x)
            return functional.relu(y) + y

    assert kinds(lowered(Residual(), IMAGE)) == ["Convolution", "Pointwise"]


def test_pointwise_operations_are_one_pass() -> None:
    model = Apply(lambda x: torch.relu(x * 2 + 1) / (x.exp() + 1))
    assert kinds(lowered(model, IMAGE)) == ["Pointwise", "Pointwise"]


def test_views_cost_nothing() -> None:
    model = Apply(lambda x: (x.permute(0, 2, 3, 1)[:, 1:, ::2].unsqueeze(1).transpose(2, 3) * 2).flatten(1))
    assert kinds(lowered(model, IMAGE)) == ["Pointwise"]


def test_a_view_that_memory_does_not_allow_is_a_copy() -> None:
    assert kinds(lowered(Apply(lambda x: x.transpose(1, 2).reshape(len(x), -1)), IMAGE)) == ["Assemble"]


def test_constants_are_computed_ahead() -> None:
    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            positions = torch.arange(x.shape[-1]) % 3
            mask = torch.ones(8, 8).tril() == 0
            table = functional.dropout(self.table(positions).masked_fill(mask, 0.0), training=self.training)
            return x + functional.scaled_dot_product_attention(table, table, table)

    assert kinds(lowered(Positions(), IMAGE)) == ["Pointwise"]


def test_writing_to_slices() -> None:
    def written(x: Tensor) -> Tensor:
        y = x.clone()
        y[:, 1:] += x[:, :2]
        y[..., -1] = 0.5 * x[..., 0]
        y[:, :, -3:-1] = y[:, :, :2]
        return y

    assert "Assemble" in kinds(lowered(Apply(written), IMAGE))
    with pytest.raises(GossamerError, match="its step is 2"):
        lowered(Apply(lambda x: x.slice_scatter(2.0 * x[:, ::2], 1, step=2)), IMAGE)


def test_what_nobody_reads_is_not_computed() -> None:
    class Wasteful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(8, 3), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            self.unused(x)
            return self.used(x)

    assert kinds(lowered(Wasteful(), IMAGE)) == ["Convolution"]


def test_the_mean_pooling_of_a_whole_plane_stays_by_itself() -> None:
    """Sixty-four sums would not stay in registers."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.AvgPool2d(8))
    program = lowered(model, IMAGE)
    assert kinds(program) == ["Convolution", "Pool"]
    layer = program.steps[0].operation
    assert isinstance(layer, Convolution)
    assert layer.pooling is None
