import copy
import math
import pickle
import warnings

import pytest
import torch
from torch import nn

import gossamer
from gossamer import SparsityWarning


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def warned(factor, steps, *, parts=1, set_to_none=True, clip=False, fused=None):
    """The warnings of a training under GradScaler; `factor(step)` multiplies the loss. And the handle."""
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=fused)
    handle = gossamer.attach(optimizer, gossamer.l1(model, 1e-3))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for step in range(steps):
            optimizer.zero_grad(set_to_none=set_to_none)
            for _ in range(parts):
                loss = model(torch.randn(4, 6)).square().mean() * factor(step)
                scaler.scale(loss).backward()
            if clip:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    return [str(warning.message) for warning in seen if warning.category is SparsityWarning], handle


@pytest.mark.parametrize("options", [{}, {"parts": 3}, {"set_to_none": False}, {"clip": True}, {"fused": True}])
def test_a_loss_that_stays_infinite_is_one_warning(options):
    found, handle = warned(lambda step: math.inf if step >= 10 else 1.0, 200, **options)
    assert len(found) == 1
    assert "the training stands still" in found[0]
    assert found[0].startswith("50 gradients in succession")
    assert handle.steps == 10


def test_steps_that_are_skipped_now_and_then_are_none():
    found, handle = warned(lambda step: math.inf if step % 40 else 1.0, 100)
    assert found == []
    assert handle.steps == 3


@pytest.mark.parametrize("set_to_none", [True, False])
def test_many_parts_of_one_gradient_are_none(set_to_none):
    """One overflow in a gradient that is accumulated over many batches is one skipped step."""
    found, _ = warned(lambda step: math.inf if step == 1 else 1.0, 3, parts=120, set_to_none=set_to_none)
    assert found == []


def test_the_count_follows_parameters_and_ends_with_the_handle():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = gossamer.attach(optimizer, gossamer.l1(model, 1e-3))

    def infinite(times):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for _ in range(times):
                optimizer.zero_grad()
                (model(torch.randn(4, 6)).mean() * math.inf).backward()
        return seen

    with torch.no_grad():
        model[2].weight[:, :3] = 0
    gossamer.shrink_(model, torch.randn(2, 6), optimizer=optimizer)
    model(torch.randn(4, 6)).mean().backward()
    optimizer.step()
    assert len(infinite(60)) == 1
    assert infinite(60) == []
    handle.remove()
    handle = gossamer.attach(optimizer, gossamer.l1(model, 1e-3))
    handle.remove()
    assert infinite(60) == []


def test_the_model_is_copied_and_pickled_as_before():
    model = net()
    handle = gossamer.attach(torch.optim.SGD(model.parameters(), lr=0.1), gossamer.l1(model, 1e-3))
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert all(map(torch.equal, model.parameters(), other.parameters()))
    assert handle.steps == 0
