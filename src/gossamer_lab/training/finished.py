"""A run from its configuration to its result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gossamer_lab.data import Dataset
from gossamer_lab.training.assembly import assemble, load_dataset
from gossamer_lab.training.config import TrainingConfig
from gossamer_lab.training.directory import RunDirectory, open_run
from gossamer_lab.training.loop import train
from gossamer_lab.training.metrics import EpochMetrics

__all__ = ["finished_run"]


def finished_run(
    config: TrainingConfig,
    path: Path,
    *,
    dataset: Callable[[TrainingConfig], Dataset] = load_dataset,
    on_epoch: Callable[[EpochMetrics], None] = lambda _: None,
) -> RunDirectory:
    """The run of a configuration in a folder, with its result: read, resumed where it was interrupted, or trained.

    Args:
        config: Configuration of the run; if the folder holds a run, it must be of this configuration.
        path: The folder.
        dataset: Gives the data set of the configuration; not called if the run has its result.
        on_epoch: Called with the metrics of each epoch of a run without a result, those before an interruption too.
    """
    run = RunDirectory(path)
    if run.result.exists() and run.config.exists():
        run.require(config)
    else:
        open_run(path, config, resume=True)
        images = dataset(config)
        model, regularizer = assemble(config, images)
        for metrics in train(model, images, regularizer, config, run):
            on_epoch(metrics)
        run.remove_checkpoints()
    return run
