"""Training to the end and writing it down: configuration, loop, checkpoint, stopping, the files of a run."""

from gossamer.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from gossamer.training.config import TrainingConfig
from gossamer.training.directory import RunDirectory, clear, open_run
from gossamer.training.loop import accuracy, train, train_epoch
from gossamer.training.metrics import EpochMetrics, RunResult
from gossamer.training.progress import Phase, Progress, learning_rate
from gossamer.training.small import Small, write_small

__all__ = [
    "Checkpoint",
    "EpochMetrics",
    "Phase",
    "Progress",
    "RunDirectory",
    "RunResult",
    "Small",
    "TrainingConfig",
    "accuracy",
    "clear",
    "learning_rate",
    "load_checkpoint",
    "open_run",
    "save_checkpoint",
    "train",
    "train_epoch",
    "write_small",
]
