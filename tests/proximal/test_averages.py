"""Averages of weights have no zeros of their own; `copy_zeros` gives them those of the model."""

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import gossamer
from gossamer import GossamerError


def trained():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gossamer.attach(optimizer, gossamer.l1(model, 2e-2))
    for _ in range(60):
        optimizer.zero_grad()
        x = torch.randn(32, 6)
        (model(x) - x[:, :3]).square().mean().backward()
        optimizer.step()
        averaged.update_parameters(model)
    return model, averaged


@pytest.mark.parametrize("unwrap", [False, True])
def test_an_average_gets_the_zeros_of_the_model(unwrap):
    model, averaged = trained()
    zeros = {name: p == 0 for name, p in model.named_parameters()}
    count = int(zeros["0.weight"].sum() + zeros["3.weight"].sum())
    assert 0 < count < 144
    average = averaged.module
    before = {name: p.detach().clone() for name, p in average.named_parameters()}
    missing = sum(int((before[name][zeros[name]] != 0).sum()) for name in ("0.weight", "3.weight"))
    assert missing > 0  # without it the average is not sparse
    assert gossamer.copy_zeros(average if unwrap else averaged, model) == missing
    for name, parameter in average.named_parameters():
        if name in ("0.weight", "3.weight"):
            assert (parameter[zeros[name]] == 0).all()
            assert torch.equal(parameter[~zeros[name]], before[name][~zeros[name]])
        else:
            assert torch.equal(parameter, before[name])
    assert gossamer.copy_zeros(averaged, model) == 0


def test_wrapped_models():
    model, averaged = trained()
    assert gossamer.copy_zeros(averaged, nn.DataParallel(model)) > 0


@pytest.mark.parametrize(
    ("other", "received"),
    [
        (nn.Sequential(nn.Linear(6, 17), nn.BatchNorm1d(17), nn.ReLU(), nn.Linear(17, 3)), r"the shape \(17, 6\)"),
        (nn.Linear(6, 16), "no such weight"),
    ],
)
def test_an_average_of_another_model(other, received):
    model, _ = trained()
    before = {name: p.detach().clone() for name, p in other.named_parameters()}
    with pytest.raises(GossamerError, match=rf"`0.weight` of shape \(16, 6\).*{received}"):
        gossamer.copy_zeros(other, model)
    assert all(torch.equal(p, before[name]) for name, p in other.named_parameters())
