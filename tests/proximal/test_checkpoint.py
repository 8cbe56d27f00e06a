"""Our state rides in `optimizer.state_dict()`, through `torch.save`, and comes back bit by bit."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import gossamer
from gossamer import GossamerError


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))


def data(count):
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(32, 6, generator=generator), torch.randint(0, 3, (32,), generator=generator)) for _ in range(count)
    ]


def start(model, metric):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    strength = 5e-3 if metric == "adaptive" else 0.2  # Adam's own metric multiplies by 1 / sqrt(v)
    regularizer = gossamer.integrated_tl1(model, strength)
    return optimizer, gossamer.attach(optimizer, regularizer, metric=metric, schedule=gossamer.warm_up(50))


def train(model, optimizer, batches):
    for x, y in batches:
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()


@pytest.mark.parametrize("metric", ["euclidean", "adaptive"])
@pytest.mark.parametrize("held", [False, True])
def test_resume_is_bit_identical(tmp_path, metric, held):
    model, batches = net(), data(80)
    optimizer, handle = start(model, metric)
    train(model, optimizer, batches[:40])
    if held:
        handle.hold()
    train(model, optimizer, batches[40:50])
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "c.pt")
    train(model, optimizer, batches[50:])

    resumed = net()
    optimizer, handle = start(resumed, metric)
    checkpoint = torch.load(tmp_path / "c.pt", weights_only=True)
    optimizer.load_state_dict(checkpoint["optimizer"])
    resumed.load_state_dict(checkpoint["model"])
    assert (handle.steps, handle.held) == (50, held)
    train(resumed, optimizer, batches[50:])
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), resumed.parameters(), strict=True))
    assert gossamer.measure(model, batches[0][0]).params_kept < 1


def test_several_regularizers_keep_apart():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    first = gossamer.attach(optimizer, gossamer.l1(model, 1e-3, only=["0"]))
    second = gossamer.attach(optimizer, gossamer.l1(model, 1e-3, only=["2"]))
    train(model, optimizer, data(2))
    first.remove()
    third = gossamer.attach(optimizer, gossamer.l1(model, 1e-3, only=["0"]))
    train(model, optimizer, data(1))
    state = copy.deepcopy(optimizer.state_dict())
    train(model, optimizer, data(5))
    optimizer.load_state_dict(state)
    assert (second.steps, third.steps) == (3, 1)


def test_a_checkpoint_without_our_state_changes_nothing():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plain = copy.deepcopy(optimizer.state_dict())
    handle = gossamer.attach(optimizer, gossamer.l1(model, 1e-3))
    train(model, optimizer, data(2))
    optimizer.load_state_dict(plain)
    assert handle.steps == 2


def test_a_plain_optimizer_loads_our_checkpoint():
    model = net()
    optimizer, _ = start(model, "euclidean")
    train(model, optimizer, data(2))
    other = torch.optim.Adam(net().parameters(), lr=1e-2)
    other.load_state_dict(optimizer.state_dict())
    assert "gossamer" not in other.state_dict()


def test_the_checkpoint_of_another_regularizer():
    model = net()
    optimizer, attached = start(model, "euclidean")
    train(model, optimizer, data(2))
    state = optimizer.state_dict()
    attached.remove()
    other = torch.optim.Adam(model.parameters(), lr=5e-2)
    handle = gossamer.attach(other, gossamer.l1(model, 1e-3, only=["2"]))
    with pytest.raises(GossamerError, match=r"0\.weight, 2\.weight.*is on 2\.weight"):
        other.load_state_dict(state)
    assert handle.steps == 0
    assert other.param_groups[0]["lr"] == 5e-2


def test_the_checkpoint_of_another_size():
    model = net()
    optimizer, handle = start(model, "euclidean")
    handle.hold()
    state = optimizer.state_dict()
    wider = nn.Sequential(nn.Linear(6, 17), nn.ReLU(), nn.Linear(17, 3))
    other, _ = start(wider, "euclidean")
    with pytest.raises(GossamerError, match=r"\(16, 6\).*\(17, 6\)"):
        other.load_state_dict(state)


def test_zeros_follow_a_smaller_weight():
    model = net()
    optimizer, handle = start(model, "adaptive")
    train(model, optimizer, data(60))
    handle.hold()
    kept = torch.arange(0, 16, 2)
    before = model[0].weight == 0
    assert 0 < before[kept].sum() < before[kept].numel()
    weight = model[0].weight
    weight.data = weight.data[kept]
    handle.cut_(lambda parameter, zeros: zeros[kept] if parameter is weight else zeros)
    weight.grad = torch.ones_like(weight)
    optimizer.state.clear()
    model[0].bias.grad = model[2].weight.grad = None
    optimizer.step()
    assert torch.equal(weight == 0, before[kept])
