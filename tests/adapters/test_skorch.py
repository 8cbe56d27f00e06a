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


@pytest.mark.parametrize(
    ("epochs", "options"),
    [(6, {"hold_at": 0.4}), (6, {"hold_at": 0.6}), (9, {"target": 0.5})],
    ids=["held before", "held after", "target"],
)
def test_resumed_after_a_kill(tmp_path, epochs, options):
    whole, callback = fit(tmp_path / "whole", epochs=epochs, **options)
    run_until_killed(lambda: fit(tmp_path / "killed", epochs=epochs, extra=[("kill", Kill())], **options))
    resumed, again = fit(tmp_path / "killed", epochs=epochs - 3, **options)
    assert len(resumed.history) == epochs
    for (name, parameter), other in zip(whole.module_.named_parameters(), resumed.module_.parameters(), strict=True):
        assert torch.equal(parameter, other), name
    assert resumed.history[:, "gossamer/params_kept"] == whole.history[:, "gossamer/params_kept"]
    assert 0.05 < whole.history[-1, "gossamer/params_kept"] < 0.95

    x = torch.from_numpy(data()[0])
    for small in (callback.small_, again.small_):
        assert gossamer.measure(small, EXAMPLE).total.units < 64 + 32 + 3
        torch.testing.assert_close(small(x), whole.module_.eval()(x))
    if "target" in options:
        assert whole.history[-1, "gossamer/params_kept"] == pytest.approx(0.5, abs=0.001)
        assert again.reached_ == callback.reached_
    if options.get("hold_at") == 0.4:  # once: it takes seconds
        gossamer.export_onnx(again.small_, tmp_path / "net.onnx", EXAMPLE)


def test_it_can_be_cloned_and_searched():
    from sklearn.base import clone

    net = skorch.NeuralNet(Net, nn.CrossEntropyLoss, callbacks=[("sparsity", SparsityCallback(on_units, EXAMPLE))])
    net = clone(net).set_params(callbacks__sparsity__hold_at=0.5)
    net.initialize()
    assert dict(net.callbacks_)["sparsity"].hold_at == 0.5
