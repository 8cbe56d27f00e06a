from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from gossamer.regularizers import l1
from gossamer_lab.data import Dataset
from gossamer_lab.training import EpochMetrics, RunDirectory, TrainingConfig, open_run, train

CONFIG = TrainingConfig(dataset="blobs", regularizer="l1", strength=3e-2, epochs=10, batch_size=16)

StartTraining = Callable[..., Iterator[EpochMetrics]]


class SmallNetwork(nn.Module):
    """With dropout, so that random numbers matter in every step."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.hidden = nn.Linear(6, 12)
        self.output = nn.Linear(12, 3)
        for weight in self.parameters():
            nn.init.uniform_(weight, -0.5, 0.5, generator=generator)

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        return self.output(nn.functional.dropout(torch.relu(self.hidden(points)), 0.2, self.training))


@pytest.fixture(autouse=True, scope="session")
def _checkpoint_after_every_epoch() -> Iterator[None]:
    """These trainings are over before the time between two checkpoints is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gossamer_lab.training.loop._CHECKPOINT_SECONDS", 0.0)
        yield


@pytest.fixture
def config() -> TrainingConfig:
    return CONFIG


@pytest.fixture(scope="session")
def dataset() -> Dataset:
    """Three clouds of points; only three of the six coordinates tell them apart."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(120) % 3
    points = 0.4 * torch.randn(120, 6, generator=generator)
    points[torch.arange(120), labels] += 2
    return Dataset("blobs", points[:90], labels[:90], points[90:], labels[90:], classes=3)


@pytest.fixture(scope="session")
def small_network() -> Callable[[], nn.Module]:
    return lambda: SmallNetwork(torch.Generator().manual_seed(7))


@pytest.fixture(scope="session")
def start(dataset: Dataset, small_network: Callable[[], nn.Module]) -> StartTraining:
    """Start, or resume, a training in a folder, as another process would: with everything new but the files."""

    def start_training(path: Path, config: TrainingConfig = CONFIG, resume: bool = False) -> Iterator[EpochMetrics]:
        model = small_network()
        regularizer = l1(model, config.strength or None) if config.regularizer == "l1" else None
        return train(model, dataset, regularizer, config, open_run(path, config, resume=resume))

    return start_training


@pytest.fixture(scope="session")
def finished(start: StartTraining, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A whole run that nobody disturbed."""
    path = tmp_path_factory.mktemp("finished")
    for _ in start(path):
        pass
    return RunDirectory(path)
