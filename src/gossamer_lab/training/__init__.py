"""Training to the end and writing it down: configuration, loop, checkpoint, stopping, the files of a run."""

from gossamer_lab.training.assemble import assemble, images_of
from gossamer_lab.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from gossamer_lab.training.config import TrainingConfig
from gossamer_lab.training.directory import RunDirectory, clear, open_run
from gossamer_lab.training.loop import DivergedError, accuracy, fast_layout, random_numbers_of, train, train_epoch
from gossamer_lab.training.methods import METHODS, Method, method
from gossamer_lab.training.metrics import EpochMetrics, RunResult
from gossamer_lab.training.progress import Phase, Progress, learning_rate
from gossamer_lab.training.settings import SETTINGS, defaults
from gossamer_lab.training.small import Small, write_small

__all__ = [
    "METHODS",
    "SETTINGS",
    "Checkpoint",
    "DivergedError",
    "EpochMetrics",
    "Method",
    "Phase",
    "Progress",
    "RunDirectory",
    "RunResult",
    "Small",
    "TrainingConfig",
    "accuracy",
    "assemble",
    "clear",
    "defaults",
    "fast_layout",
    "images_of",
    "learning_rate",
    "load_checkpoint",
    "method",
    "open_run",
    "random_numbers_of",
    "save_checkpoint",
    "train",
    "train_epoch",
    "write_small",
]
