"""Training runs: configuration, loop, checkpoints and run directories.

Modules that need torch are imported on first use, so that the command can build its options without it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gossamer_lab.training.config import TrainingConfig
from gossamer_lab.training.metrics import EpochMetrics, RunResult
from gossamer_lab.training.progress import Phase, Progress, learning_rate
from gossamer_lab.training.regularizers import REGULARIZERS, RegularizerSpec, regularizer_spec
from gossamer_lab.training.settings import SETTINGS, defaults

if TYPE_CHECKING:
    from gossamer_lab.training.assembly import assemble, load_dataset
    from gossamer_lab.training.checkpoint import Checkpoint, load_checkpoint, restore_optimizer, save_checkpoint
    from gossamer_lab.training.directory import RunDirectory, clear, open_run
    from gossamer_lab.training.finished import finished_run
    from gossamer_lab.training.loop import (
        DivergedError,
        accuracy,
        channels_last,
        epoch_random_state,
        train,
        train_epoch,
    )
    from gossamer_lab.training.shrunk import ShrunkNetwork, write_shrunk

__all__ = [
    "REGULARIZERS",
    "SETTINGS",
    "Checkpoint",
    "DivergedError",
    "EpochMetrics",
    "Phase",
    "Progress",
    "RegularizerSpec",
    "RunDirectory",
    "RunResult",
    "ShrunkNetwork",
    "TrainingConfig",
    "accuracy",
    "assemble",
    "channels_last",
    "clear",
    "defaults",
    "epoch_random_state",
    "finished_run",
    "learning_rate",
    "load_checkpoint",
    "load_dataset",
    "open_run",
    "regularizer_spec",
    "restore_optimizer",
    "save_checkpoint",
    "train",
    "train_epoch",
    "write_shrunk",
]

_MODULES = {
    "assembly": ("assemble", "load_dataset"),
    "checkpoint": ("Checkpoint", "load_checkpoint", "restore_optimizer", "save_checkpoint"),
    "directory": ("RunDirectory", "clear", "open_run"),
    "finished": ("finished_run",),
    "loop": ("DivergedError", "accuracy", "channels_last", "epoch_random_state", "train", "train_epoch"),
    "shrunk": ("ShrunkNetwork", "write_shrunk"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
