import warnings

import pytest
import torch
from torch import nn

import gossamer
from gossamer import SparsityWarning


def net(*layers):
    torch.manual_seed(0)
    return nn.Sequential(*(layers or (nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))))


def warned(model, strength, *, steps=60, lr=0.1, regularizer=gossamer.l1, before=lambda step, model: None, **options):
    """The warnings of a training."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    gossamer.attach(optimizer, regularizer(model, strength), steps=steps, **options)
    generator = torch.Generator().manual_seed(0)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for step in range(steps):
            before(step, model)
            x = torch.randn(32, 6, generator=generator)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long() + (x[:, 1] > 1).long()).backward()
            optimizer.step()
    return [str(warning.message) for warning in seen if warning.category is SparsityWarning]


def test_a_healthy_training_is_silent():
    assert warned(net(), 1e-2) == []


def test_a_layer_with_one_unit_left():
    def kill(step, model):
        if step == 20:
            with torch.no_grad():
                model[0].weight[1:] = 0

    found = warned(net(), 1e-3, before=kill)
    assert [message for message in found if "0.weight has at most one unit left" in message]


def test_a_constant_output_is_one_warning():
    found = warned(net(), 100.0)
    constant = [message for message in found if "the output no longer depends on the input" in message]
    assert len(constant) == 1
    assert "All weights of 0.weight, 2.weight are zero" in constant[0]


def test_dead_relus():
    model = net()
    with torch.no_grad():
        model[0].bias.fill_(-100)
    (found,) = warned(model, 1e-9, lr=1e-3)[:1]
    assert "gets a gradient of exactly zero" in found
    assert "died (ReLU)" in found


def test_no_zeros_after_a_third():
    found = warned(net(), 1e-12, steps=300)
    assert len(found) == 1
    assert "After 100 steps with the penalty no weight is zero" in found[0]
    assert warned(net(), 1e-12, steps=300, schedule=gossamer.warm_up(1000)) == []
    assert warned(net(), 1e-3, steps=300, regularizer=gossamer.l2) == []  # it has none


def test_scale_free_weights():
    layers = nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)
    model = net(*layers)
    optimizer_only = {"regularizer": lambda model, strength: gossamer.l1(model, strength, only=["0"])}
    found = warned(model, 1e-3, **optimizer_only)
    assert any("Every regularized weight is scale-free" in message for message in found)
    assert not any("scale-free" in message for message in warned(net(*layers), 1e-3))  # the last one has a scale


def test_scale_free_weights_of_two_layers():
    """The eps of a normalisation gives gradients a small part along the weights."""
    norms = nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 8, bias=False), nn.BatchNorm1d(8)
    first_two = {"regularizer": lambda model, strength: gossamer.l1(model, strength, only=["0", "3"])}
    found = warned(net(*norms, nn.ReLU(), nn.Linear(8, 3)), 1e-4, steps=120, **first_two)
    assert any("Every regularized weight is scale-free" in message for message in found)


def test_weights_that_are_not_finite_are_an_error():
    def spoil(step, model):
        if step == 5:
            with torch.no_grad():
                model[2].bias.fill_(float("nan"))

    with pytest.raises(gossamer.GossamerError, match="no longer finite after step 6"):
        warned(net(), 1e-3, before=spoil)
