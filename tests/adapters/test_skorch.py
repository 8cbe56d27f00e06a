"""skorch trains, checkpoints, is killed and resumes; the zeros are those of an uninterrupted training."""

import numpy as np
import pytest
import torch
from torch import nn

import gossamer

from .interrupted import die, run_until_killed

skorch = pytest.importorskip("skorch")

from skorch.callbacks import Callback, Checkpoint, LoadInitState  # noqa: E402

from gossamer.adapters.skorch import SparsityCallback  # noqa: E402

EXAMPLE = torch.zeros(2, 12)


class Net(nn.Sequential):
    def __init__(self):
        torch.manual_seed(0)
        super().__init__(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 32, bias=False), nn.ReLU(), nn.Linear(32, 3))


class Kill(Callback):
    def on_batch_begin(self, net, **others):
        if len(net.history) == 4 and len(net.history[-1]["batches"]) == 3:
            die()


def data():
    x = np.random.default_rng(1).normal(size=(256, 12)).astype(np.float32)
    return x, (x[:, 0] > 0).astype(np.int64) + (x[:, 1] > 0)


def on_units(module):
    return gossamer.group_lasso(module, 0.025, groups="outputs", scale_by_size=False, skip=["4"])


def fit(folder, *, epochs=6, extra=(), **options):
    checkpoint = Checkpoint(dirname=folder, monitor=None)
    net = skorch.NeuralNetClassifier(
        Net,
        max_epochs=epochs,
        batch_size=32,
        optimizer=torch.optim.SGD,
        lr=0.1,
        optimizer__momentum=0.9,
        criterion=nn.CrossEntropyLoss,
        train_split=None,
        verbose=0,
        callbacks=[
            ("sparsity", SparsityCallback(on_units, EXAMPLE, **options)),
            ("checkpoint", checkpoint),
            ("load", LoadInitState(checkpoint)),
            *extra,
        ],
    )
    net.fit(*data())
    return net, dict(net.callbacks_)["sparsity"]


@pytest.mark.parametrize("hold_at", [0.4, 0.6], ids=["held before", "held after"])
def test_resumed_after_a_kill(tmp_path, hold_at):
    whole, callback = fit(tmp_path / "whole", hold_at=hold_at)
    run_until_killed(lambda: fit(tmp_path / "killed", extra=[("kill", Kill())], hold_at=hold_at))
    resumed, again = fit(tmp_path / "killed", epochs=3, hold_at=hold_at)
    assert len(resumed.history) == 6
    for (name, parameter), other in zip(whole.module_.named_parameters(), resumed.module_.parameters(), strict=True):
        assert torch.equal(parameter, other), name
    assert resumed.history[:, "gossamer/params_kept"] == whole.history[:, "gossamer/params_kept"]
    assert 0.05 < whole.history[-1, "gossamer/params_kept"] < 0.95

    x = torch.from_numpy(data()[0])
    for small in (callback.small_, again.small_):
        assert gossamer.measure(small, EXAMPLE).total.units < 64 + 32 + 3
        torch.testing.assert_close(small(x), whole.module_.eval()(x))
    if hold_at == 0.4:  # once: it takes seconds
        gossamer.export_onnx(again.small_, tmp_path / "net.onnx", EXAMPLE)


def test_it_can_be_cloned_and_searched():
    from sklearn.base import clone

    net = skorch.NeuralNet(Net, nn.CrossEntropyLoss, callbacks=[("sparsity", SparsityCallback(on_units, EXAMPLE))])
    net = clone(net).set_params(callbacks__sparsity__hold_at=0.5)
    net.initialize()
    assert dict(net.callbacks_)["sparsity"].hold_at == 0.5
