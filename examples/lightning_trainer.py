"""gossamer in Lightning: a callback.

python examples/lightning_trainer.py [EPOCHS]
"""

import logging
import sys
import tempfile
import warnings

import lightning
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import gossamer
from gossamer.adapters.lightning import SparsityCallback


class Digits(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 200), nn.ReLU(), nn.Linear(200, 100), nn.ReLU(), nn.Linear(100, 10))
        self.example_input_array = torch.zeros(1, 64)

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, index):
        x, y = batch
        return nn.functional.cross_entropy(self(x), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


def main(epochs):
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    torch.manual_seed(0)
    data = load_digits()
    images, labels = torch.tensor(data.data, dtype=torch.float32) / 16, torch.tensor(data.target)

    model = Digits()
    callback = SparsityCallback(
        lambda model: gossamer.integrated_tl1(model, strength=7e-4), hold_at=0.75, compact_every=2
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            max_epochs=epochs, callbacks=[callback], default_root_dir=folder, logger=False, accelerator="cpu",
            enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        # ckpt_path="last" or the path of a checkpoint goes on where a stopped training was.
        trainer.fit(model, DataLoader(TensorDataset(images, labels), batch_size=64, shuffle=True))
    print({name: f"{value:.3f}" for name, value in trainer.callback_metrics.items()})

    small = callback.small
    print(gossamer.measure(small, images[:1]))
    print(f"accuracy on the training images {(small(images).argmax(1) == labels).float().mean().item():.4f}")
    print("the same outputs:", torch.allclose(small(images), model(images), atol=1e-4))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
