"""Lightning trains, checkpoints, is killed and resumes; the zeros are those of an uninterrupted training."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import gossamer
from gossamer import GossamerError

from .interrupted import die, run_until_killed

lightning = pytest.importorskip("lightning")

from lightning.pytorch.callbacks import Callback, ModelCheckpoint  # noqa: E402

from gossamer.adapters.lightning import SparsityCallback  # noqa: E402

# Lightning's own affairs
pytestmark = [
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The 'train_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory"),
]
EXAMPLE = torch.zeros(2, 12)


class Classifier(lightning.LightningModule):
    def __init__(self, optimizers=1):
        super().__init__()
        torch.manual_seed(0)
        # The second layer gets a bias when dead units of the first one leave: their constants go there.
        self.net = nn.Sequential(
            nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 32, bias=False), nn.ReLU(), nn.Linear(32, 3)
        )
        self.example_input_array = EXAMPLE
        self.automatic_optimization = optimizers == 1
        self.optimizers_wanted = optimizers

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, index):
        x, y = batch
        return nn.functional.cross_entropy(self(x), y)

    def configure_optimizers(self):
        made = [torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9) for _ in range(self.optimizers_wanted)]
        return made if self.optimizers_wanted > 1 else made[0]


class Kill(Callback):
    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.current_epoch == 3 and batch_idx == 2:
            die()


def loader():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(256, 12, generator=generator)
    return DataLoader(TensorDataset(x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()), batch_size=32)


def on_units(strength):
    def regularizer(model):
        *_, last = model.modules()
        return gossamer.group_lasso(model, strength, groups="outputs", scale_by_size=False, skip=[last])

    return regularizer


def fit(folder, strength=0.03, *, resume=False, extra=(), module=None, epochs=6, **options):
    callback = SparsityCallback(on_units(strength), **options)
    trainer = lightning.Trainer(
        max_epochs=epochs,
        callbacks=[callback, ModelCheckpoint(folder, save_last=True), *extra],
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module = Classifier() if module is None else module
    trainer.fit(module, loader(), ckpt_path=folder / "last.ckpt" if resume else None)
    return module, callback, trainer


@pytest.mark.parametrize(
    ("strength", "options"),
    [
        (0.03, {"hold_at": 0.4}),
        (0.025, {"hold_at": 0.6, "compact_every": 1}),
        (0.02, {"network": "net"}),
        (None, {"target": 0.5, "epochs": 9}),
    ],
    ids=["held before", "compacted", "network inside", "target"],
)
def test_resumed_after_a_kill(tmp_path, strength, options):
    whole, callback, trainer = fit(tmp_path / "whole", strength, **options)
    run_until_killed(lambda: fit(tmp_path / "killed", strength, extra=[Kill()], **options))
    left = torch.load(tmp_path / "killed" / "last.ckpt", weights_only=True)
    assert left["epoch"] == 2
    assert (left["state_dict"]["net.0.weight"].shape[0] < 64) is ("compact_every" in options)
    assert ("net.2.bias" in left["state_dict"]) is ("compact_every" in options)
    resumed, again, _ = fit(tmp_path / "killed", strength, resume=True, **options)
    for (name, parameter), other in zip(whole.named_parameters(), resumed.parameters(), strict=True):
        assert torch.equal(parameter, other), name
    assert 0.05 < trainer.callback_metrics["gossamer/params_kept"] < 0.9

    if "target" in options:
        assert trainer.callback_metrics["gossamer/params_kept"] == pytest.approx(0.5, abs=0.001)
        assert again.reached == callback.reached
    counted = gossamer.measure(whole, EXAMPLE).total
    assert (counted.units_alive < counted.units) is ("compact_every" not in options)
    x = torch.randn(50, 12)
    for small in (callback.small, again.small):
        assert gossamer.measure(small, EXAMPLE).total.units < 64 + 32 + 3
        torch.testing.assert_close(small(x), whole.eval()(x))
    if "network" in options:  # once: it takes seconds
        gossamer.export_onnx(again.small, tmp_path / "net.onnx", EXAMPLE)


def test_the_checkpoint_is_before_the_hold_or_after_it(tmp_path):
    fit(tmp_path, hold_at=0.5, epochs=3)
    state = torch.load(tmp_path / "last.ckpt", weights_only=True)["optimizer_states"][0]["param_groups"][0]["gossamer"][
        0
    ]
    assert state["steps"] == 24
    assert state["held"]
    fit(tmp_path / "free", hold_at=None, epochs=3)
    state = torch.load(tmp_path / "free" / "last.ckpt", weights_only=True)["optimizer_states"][0]["param_groups"][0][
        "gossamer"
    ][0]
    assert not state["held"]


def test_a_second_fit_starts_anew(tmp_path):
    module, callback, trainer = fit(tmp_path, epochs=1)
    assert callback.handle is None
    assert "gossamer" not in trainer.optimizers[0].state_dict()["param_groups"][0]
    fit(tmp_path / "again", module=module, epochs=1)


def test_what_it_refuses(tmp_path):
    module = Classifier()
    module.example_input_array = None
    with pytest.raises(GossamerError, match="example_input_array"):
        fit(tmp_path, module=module)
    with pytest.raises(GossamerError, match="needs one optimizer; this module has 2"):
        fit(tmp_path, module=Classifier(optimizers=2))
    with pytest.raises(GossamerError, match="no end"):
        fit(tmp_path, epochs=-1)
    fit(tmp_path, epochs=-1, hold_at=None, extra=[Stop()])


class Stop(Callback):
    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        trainer.should_stop = True


def test_the_other_package_of_lightning(tmp_path):
    other = pytest.importorskip("pytorch_lightning")
    callback = SparsityCallback(lambda model: gossamer.l1(model, 1e-2), EXAMPLE, network="net")

    class Module(other.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Classifier().net

        def training_step(self, batch, index):
            x, y = batch
            return nn.functional.cross_entropy(self.net(x), y)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    trainer = other.Trainer(
        max_epochs=1, callbacks=[callback], logger=False, enable_progress_bar=False, default_root_dir=tmp_path
    )
    trainer.fit(Module(), loader())
    assert gossamer.measure(callback.small, EXAMPLE).params_kept < 1
