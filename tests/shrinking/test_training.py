"""Shrinking in the middle of training: the rest of the training is the same, only smaller."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

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


def folding() -> nn.Sequential:
    """The third layer gets a bias, because a constant of the first is folded into it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Sigmoid(), nn.Linear(4, 4, bias=False), nn.Linear(4, 2))
    with torch.no_grad():
        model[0].weight[1] = 0
    return model


def test_a_created_bias_has_its_name_and_the_place_of_a_fresh_optimizer() -> None:
    model = folding()
    optimizer = torch.optim.Adam(model.named_parameters())
    model(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        model[0].weight[1] = 0
    shrink_(model, torch.randn(2, 3), optimizer=optimizer)
    group = optimizer.param_groups[0]
    assert group["param_names"] == [name for name, _ in model.named_parameters()]
    assert [id(p) for p in group["params"]] == [id(p) for p in model.parameters()]
    model(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    fresh = torch.optim.Adam(model.parameters())
    fresh.load_state_dict(optimizer.state_dict())
    for parameter in model.parameters():
        assert torch.equal(fresh.state[parameter]["exp_avg"], optimizer.state[parameter]["exp_avg"])
        assert fresh.state[parameter]["exp_avg"].shape == parameter.shape


@pytest.mark.parametrize("wrap", [copy.deepcopy, torch.optim.swa_utils.AveragedModel])
def test_an_average_is_cut_along(wrap: Callable[[nn.Module], nn.Module]) -> None:
    model = folding()
    average = wrap(model)
    x = torch.randn(5, 3)
    expected = average(x)
    shrink_(model, x, also=[average])
    torch.testing.assert_close(average(x), expected)
    own = average.module if hasattr(average, "module") else average
    assert [p.shape for p in own.parameters()] == [p.shape for p in model.parameters()]
    assert all(a is not b for a, b in zip(own.parameters(), model.parameters(), strict=True))
    if isinstance(average, torch.optim.swa_utils.AveragedModel):
        average.update_parameters(model)


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


class Dropping(nn.Module):
    """A constant unit, and a dropout function whose probability is `p`, in training mode only."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.first, self.last, self.p = nn.Linear(3, 4), nn.Linear(4, 2), p
        with torch.no_grad():
            self.first.weight[1] = 0

    def forward(self, x: Tensor) -> Tensor:
        p = self.p if self.training else 0.0
        return self.last(functional.dropout(self.first(x), p, self.training))


def test_dropout_with_probability_zero_is_no_dropout() -> None:
    x = torch.randn(2, 3)
    layers = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.0), nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 2))
    with torch.no_grad():
        layers[0].weight[1] = 0
        layers[2].weight[1] = 0
    shrink_(layers, x)
    assert (layers[0].out_features, layers[2].out_features) == (3, 4)
    for p, kept in ((0.0, 3), (0.5, 4)):
        model = Dropping(p)
        shrink_(model, x)
        assert model.first.out_features == kept


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


class Differs(nn.Module):
    """A network with two zero and one constant unit, and a forward that is another one in training mode."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.first, self.middle = nn.Linear(4, 8), nn.Linear(8, 6)
        self.last, self.auxiliary = nn.Linear(6, 3), nn.Linear(8, 2)
        self.kind = kind
        with torch.no_grad():
            self.first.weight[1:3], self.first.bias[1:3] = 0, -1.0
            self.middle.weight[2:5], self.middle.bias[2:5] = 0, torch.tensor([-1.0, -1.0, 0.5])

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        h = torch.relu(self.first(x))
        if self.training and self.kind == "gates":
            h = h * torch.sigmoid(torch.randn(h.shape[-1]))
        y = torch.relu(self.middle(h))
        if self.training and self.kind == "a variational code":
            y = y + torch.randn_like(y)
        if self.training and self.kind == "stochastic depth":
            y = y * torch.bernoulli(torch.full((len(x), 1), 0.5))
        if self.training and self.kind == "layer drop" and random.random() < 0.2:
            y = y * np.random.rand()
        if self.training and self.kind == "auxiliary head":
            return self.last(y), self.auxiliary(h) + h[:, 1:2]
        return (self.last(y),)


@pytest.mark.parametrize(
    "kind", ["gates", "a variational code", "stochastic depth", "layer drop", "auxiliary head", "the same"]
)
def test_training_forwards_that_are_random_or_differ(kind: str) -> None:
    torch.manual_seed(0)
    model = Differs(kind).train()
    full = copy.deepcopy(model)
    state = torch.get_rng_state()
    shrink_(model, torch.randn(5, 4, generator=torch.Generator().manual_seed(0)))
    assert torch.equal(torch.get_rng_state(), state)
    if kind != "auxiliary head":  # where the training forward fails, all units of the class may stay
        assert (model.middle.out_features == 3) is (kind in ("gates", "the same"))
    assert (model.first.out_features == 6) is (kind not in ("gates", "auxiliary head"))
    for seed in range(8):
        found = []
        for network in (full, model):
            torch.manual_seed(seed)
            random.seed(seed)
            np.random.seed(seed)
            found.append(network(torch.randn(6, 4)))
        torch.testing.assert_close(found[1], found[0])


def test_sizes_at_which_batch_statistics_amplify_rounding_show_nothing() -> None:
    """With three samples, twelve normalisations make other outputs of other roundings; nothing is kept for that."""
    torch.manual_seed(2)
    blocks = [[nn.Linear(12 if block else 5, 12), nn.BatchNorm1d(12), nn.Tanh()] for block in range(12)]
    model = nn.Sequential(*[layer for block in blocks for layer in block], nn.Linear(12, 2))
    with torch.no_grad():
        for norm in (layer for layer in model if isinstance(layer, nn.BatchNorm1d)):
            norm.weight[:4] = 0
            norm.weight[4:] *= 3
    full = copy.deepcopy(model)
    shrink_(model, torch.randn(16, 5))
    assert [norm.num_features for norm in model if isinstance(norm, nn.BatchNorm1d)] == 12 * [8]
    x = torch.randn(20, 5)
    torch.testing.assert_close(model(x), full(x), atol=1e-4, rtol=0)


def test_training_goes_on_while_an_earlier_loss_is_alive() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 10), nn.ReLU(), nn.Linear(10, 3))
    optimizer, x, hooked = torch.optim.SGD(model.parameters(), lr=0.1), torch.randn(8, 5), []
    model[0].weight.register_post_accumulate_grad_hook(lambda parameter: hooked.append(parameter.grad.shape))
    for step in range(3):
        optimizer.zero_grad()
        loss = model(x).square().sum()  # alive until the next one takes its place
        loss.backward()
        optimizer.step()
        if step == 0:
            with torch.no_grad():
                model[0].weight[1:4], model[0].bias[1:4] = 0, 0
            shrink_(model, x, optimizer=optimizer)
    assert hooked == [(10, 5), (7, 5), (7, 5)]
