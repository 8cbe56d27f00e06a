"""What each network is trained on: data, optimizer, budget, and the size that it has to reach."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import networks
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from gossamer_lab.data import Dataset, hold_out, load

__all__ = ["TASKS", "Task"]


@dataclass(frozen=True)
class Task:
    """A network, its data and its budget.

    Attributes:
        network: the class of the network.
        dataset: name of the data set.
        images: how many of its training images are used.
        epochs: the length of a training.
        rate: the largest learning rate.
        adam: AdamW instead of SGD with momentum 0.9.
        decay: weight decay of SGD.
        macs: the part of the MACs that has to be left.
        bfloat16: arithmetic of the training; the weights are float32.
        reconstructs: whether the network returns its input (an autoencoder) instead of a class.
        seeds: how many trainings of each method.
        batch: the number of images in a batch.
        held_out: the part of the images that is scored instead of the test images, and not trained on.
    """

    network: Callable[[], nn.Module]
    dataset: str
    images: int
    epochs: int
    rate: float
    macs: float
    adam: bool = False
    decay: float = 0.0
    bfloat16: bool = False
    reconstructs: bool = False
    seeds: int = 3
    batch: int = 64
    held_out: float = 0.0

    @cached_property
    def data(self) -> Dataset:
        data = load(self.dataset)
        data = replace(
            data, train_images=data.train_images[: self.images], train_labels=data.train_labels[: self.images]
        )
        return hold_out(data, self.held_out, seed=0) if self.held_out else data

    @property
    def example(self) -> Tensor:
        """One image: MACs are those of one image."""
        return self.data.example

    @property
    def steps_per_epoch(self) -> int:
        return len(self.data.train_labels) // self.batch

    def build(self, seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return self.network().to(memory_format=torch.channels_last)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        if self.adam:
            return torch.optim.AdamW(model.parameters(), lr=self.rate, weight_decay=0.0)
        return torch.optim.SGD(model.parameters(), lr=self.rate, momentum=0.9, weight_decay=self.decay)

    def loss(self, outputs: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        return F.mse_loss(outputs, images.flatten(1)) if self.reconstructs else F.cross_entropy(outputs, labels)

    @torch.no_grad()
    def score(self, model: nn.Module) -> float:
        """The accuracy on the test images; of an autoencoder the part of their variance that it explains."""
        model.eval()
        images, labels = self.data.test_images, self.data.test_labels
        outputs = torch.cat([model(part) for part in images.split(500)])
        if not self.reconstructs:
            return float((outputs.argmax(1) == labels).double().mean())
        pixels = images.flatten(1)
        return 1 - float((outputs - pixels).square().mean() / (pixels - pixels.mean(0)).square().mean())


TASKS = {
    "perceptron": Task(networks.Perceptron, "sdd", 50_000, epochs=10, rate=0.05, macs=0.1),
    "autoencoder": Task(
        networks.Autoencoder, "mnist", 20_000, epochs=15, rate=1e-3, adam=True, macs=0.25, reconstructs=True
    ),
    "recurrent": Task(networks.RecurrentNetwork, "mnist", 20_000, epochs=6, rate=2e-3, adam=True, macs=0.25),
    "mobile": Task(networks.MobileNet, "fashion-mnist", 12_000, epochs=8, rate=0.1, macs=0.4, decay=5e-4),
    "transformer": Task(networks.VisionTransformer, "fashion-mnist", 12_000, epochs=6, rate=1e-3, adam=True, macs=0.4),
    "resnet": Task(
        networks.ResNet20,
        "cifar-10",
        50_000,
        epochs=8,
        rate=0.1,
        macs=0.4,
        decay=5e-4,
        bfloat16=True,
        seeds=2,
        batch=128,
    ),
}
