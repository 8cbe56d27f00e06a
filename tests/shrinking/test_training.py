"""Shrinking in the middle of training: the rest of the training is the same, only smaller."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from gossamer.shrinking import shrink, shrink_, zero_dead_biases

DEAD = torch.tensor([1, 4, 5])


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.next = nn.Conv2d(8, 6, 3, padding=1)
        self.hidden = nn.Linear(6 * 4, 7)
        self.head = nn.Linear(7, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.conv(x)))
        x = nn.functional.max_pool2d(torch.relu(self.next(x)), 2)
        return self.head(torch.relu(self.hidden(x.flatten(1))))


def hold_dead(model: Net) -> None:
    """The units in DEAD hold at zero, ingoing and outgoing."""
    with torch.no_grad():
        for vector in (model.conv.weight, model.norm.weight, model.norm.bias):
            vector[DEAD] = 0
        model.next.weight[:, DEAD] = 0


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range, after: Callable[[], None]) -> list[float]:
    losses = []
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        x, y = torch.randn(6, 2, 4, 4, generator=generator), torch.randint(0, 3, (6,), generator=generator)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x.double()), y)
        loss.backward()
        optimizer.step()
        after()
        losses.append(loss.item())
    return losses


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2, amsgrad=True),
}


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_fifty_steps_go_on_as_if_nothing_had_happened(kind: str) -> None:
    torch.manual_seed(0)
    full = Net().double()
    hold_dead(full)
    optimizer = OPTIMIZERS[kind](full.parameters())
    train(full, optimizer, range(10), lambda: hold_dead(full))
    small, small_optimizer = copy.deepcopy((full, optimizer))

    plan = shrink_(small, torch.randn(2, 2, 4, 4).double(), optimizer=small_optimizer)
    assert small.conv.out_channels == 5
    assert small.training

    expected = train(full, optimizer, range(10, 60), lambda: hold_dead(full))
    found = train(small, small_optimizer, range(10, 60), lambda: None)
    assert found == pytest.approx(expected, rel=1e-8)
    kept = plan.kept["conv.weight"][0]
    torch.testing.assert_close(small.conv.weight, full.conv.weight[kept], rtol=1e-7, atol=1e-9)
    assert small.norm.running_mean is not None
    torch.testing.assert_close(small.norm.running_mean, full.norm.running_mean[kept], rtol=1e-7, atol=1e-9)


def test_parameters_keep_their_identity_and_state_its_shape() -> None:
    torch.manual_seed(0)
    model = Net().double()
    hold_dead(model)
    optimizer = OPTIMIZERS["adamw"](model.parameters())
    train(model, optimizer, range(3), lambda: hold_dead(model))
    before = dict(model.named_parameters())
    plan = shrink_(model, torch.randn(2, 2, 4, 4).double(), optimizer=optimizer)
    assert all(before[name] is parameter for name, parameter in model.named_parameters())
    for parameter, cuts in plan.kept_of(model).items():
        assert cuts
        assert optimizer.state[parameter]["exp_avg"].shape == parameter.shape
        assert optimizer.state[parameter]["max_exp_avg_sq"].shape == parameter.shape
        assert parameter.grad is not None
        assert parameter.grad.shape == parameter.shape


def test_a_bias_made_by_folding_is_trained_with_its_weight() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2, bias=False))
    with torch.no_grad():
        model[0].weight[1] = 0
    optimizer = torch.optim.AdamW([{"params": [model[0].weight, model[0].bias]}, {"params": [model[1].weight]}])
    shrink_(model, torch.randn(2, 3), optimizer=optimizer)
    assert model[1].bias is not None
    assert any(p is model[1].bias for p in optimizer.param_groups[1]["params"])
    model(torch.randn(5, 3)).sum().backward()
    bias = model[1].bias.clone()
    optimizer.step()
    assert not torch.equal(bias, model[1].bias)


def test_batch_norm_in_training_mode_sends_its_shift() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 1), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 1)).double()
    with torch.no_grad():
        model[0].weight[2] = 0
        model[1].bias.normal_()
        model[1].running_mean.normal_()
    x = torch.randn(3, 1, 4, 4).double()
    expected = copy.deepcopy(model)(x)
    mean = model[1].running_mean.clone()
    plan = shrink_(model, x)
    assert model[0].out_channels == 3
    torch.testing.assert_close(model[1].running_mean, mean[plan.kept["1.running_mean"][0]])
    torch.testing.assert_close(model(x), expected)


def test_dropout_in_training_keeps_a_constant_that_it_would_scale() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2))
    with torch.no_grad():
        model[0].weight[1] = 0
    assert shrink_(model, torch.randn(2, 3)).empty
    model.eval()
    assert not shrink_(model, torch.randn(2, 3)).empty


def test_dead_biases_go_to_zero_so_that_padded_convolutions_shrink() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 3, padding=1))
    with torch.no_grad():
        model[0].weight[2] = 0
        model[1].bias.fill_(1.0)
        model[3].weight[1] = 0
    x = torch.randn(2, 1, 6, 6)
    assert shrink_(model.train(), x).empty
    output_bias = model[3].bias.clone()
    assert zero_dead_biases(model, x) == 2
    assert torch.equal(model[3].bias, output_bias)
    assert zero_dead_biases(model, x) == 0
    assert shrink(model, x)[0].out_channels == 3
    shrink_(model, x)
    assert model[0].out_channels == 3
