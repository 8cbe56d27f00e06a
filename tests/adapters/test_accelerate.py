"""accelerate: attached before `prepare`, the state goes through `save_state` and `load_state`."""

import pytest
import torch
from torch import nn

import gossamer

accelerate = pytest.importorskip("accelerate")


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))


def start():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    handle = gossamer.attach(optimizer, gossamer.l1(model, 0.02))
    accelerator = accelerate.Accelerator(cpu=True)
    return accelerator, handle, *accelerator.prepare(model, optimizer)


def train(accelerator, model, optimizer, batches):
    for x, y in batches:
        optimizer.zero_grad()
        accelerator.backward(nn.functional.cross_entropy(model(x), y))
        optimizer.step()


def data(count):
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(32, 6, generator=generator), torch.randint(0, 3, (32,), generator=generator)) for _ in range(count)
    ]


def test_resumed_from_a_saved_state(tmp_path):
    batches = data(40)
    accelerator, handle, model, optimizer = start()
    train(accelerator, model, optimizer, batches[:20])
    handle.hold()
    train(accelerator, model, optimizer, batches[20:25])
    accelerator.save_state(tmp_path)
    train(accelerator, model, optimizer, batches[25:])

    again, resumed, other, its_optimizer = start()
    again.load_state(tmp_path)
    assert (resumed.steps, resumed.held) == (25, True)
    train(again, other, its_optimizer, batches[25:])
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
    assert gossamer.measure(model, batches[0][0]).params_kept < 1


def test_attached_after_prepare():
    model = net()
    accelerator = accelerate.Accelerator(cpu=True)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    gossamer.attach(optimizer, gossamer.l1(model, 0.1))
    train(accelerator, model, optimizer, data(20))
    assert gossamer.measure(model, torch.zeros(1, 6)).params_kept < 1
