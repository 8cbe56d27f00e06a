"""Training to the end and writing it down: configuration, loop, checkpoint, stopping, the files of a run."""

from gossamer.training.assemble import assemble, images_of
from gossamer.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from gossamer.training.config import TrainingConfig
from gossamer.training.directory import RunDirectory, clear, open_run
from gossamer.training.files import write_atomically
from gossamer.training.loop import DivergedError, accuracy, fast_layout, random_numbers_of, train, train_epoch
from gossamer.training.methods import METHODS, Method, method
from gossamer.training.metrics import EpochMetrics, RunResult
from gossamer.training.progress import Phase, Progress, learning_rate
from gossamer.training.settings import SETTINGS, defaults
from gossamer.training.small import Small, write_small

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
    "write_atomically",
    "write_small",
]
