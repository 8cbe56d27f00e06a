"""The command `gossamer train`: a run and its baselines."""

from __future__ import annotations

import json
import shlex
import signal
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gossamer.errors import GossamerError
from gossamer.files import write_atomically
from gossamer.regularizers import Regularizer
from gossamer_lab.cli.config_file import to_toml
from gossamer_lab.cli.data import download_bars
from gossamer_lab.cli.display import Display
from gossamer_lab.cli.options import COMPACTIONS, RunOptions
from gossamer_lab.cli.report import show_report
from gossamer_lab.cli.shrink import show_shrunk
from gossamer_lab.data import Dataset, obtain
from gossamer_lab.reporting.summary import summary_figure
from gossamer_lab.training import (
    SETTINGS,
    RunDirectory,
    RunResult,
    TrainingConfig,
    assemble,
    clear,
    defaults,
    load_dataset,
    open_run,
    regularizer_spec,
    train,
)
from gossamer_lab.training.fields import settings_of
from gossamer_lab.training.processes import from_leader, in_all, launcher, leads, process_group
from gossamer_lab.training.shrunk import require_reachable_target

__all__ = ["run_training"]

_DEFAULT_REGULARIZER = "integrated-tl1"

_OF_SOME_REGULARIZERS = ("strength", "a", "s", "balance", "groups")

# Subfolder and regularizer of each baseline.
_BASELINES = {"dense": "none", "l1": "l1"}


@dataclass(frozen=True)
class _Job:
    """A network to train, in a subfolder of the run directory; the run itself has an empty subfolder."""

    folder: str
    config: TrainingConfig
    model: nn.Module
    regularizer: Regularizer | None


def run_training(dataset: str, settings: Mapping[str, Any], options: RunOptions) -> int:
    """Train a run and its baselines, and return the exit code.

    Args:
        dataset: Name of the data set.
        settings: Fields of the configuration that were given.
        options: The other options.
    """
    with process_group(options.distributed):
        return _run_training(dataset, settings, options)


def _run_training(dataset: str, settings: Mapping[str, Any], options: RunOptions) -> int:
    # One thread: the networks are small, and other numbers of threads would change the last bits of sums.
    torch.set_num_threads(1)
    config = in_all(lambda: _configuration(dataset, settings, options))
    with download_bars(silent=options.quiet) as on_download:
        from_leader(lambda: obtain(config.dataset, options.data_dir, on_download))
        in_all(lambda: obtain(config.dataset, options.data_dir))  # of processes on other machines
    images = in_all(lambda: load_dataset(config, options.data_dir))
    if options.compact:
        config = replace(config, compact_every=max(1, config.epochs // COMPACTIONS))
    configs = {"": config, **_compared(config, options)}
    jobs = [_Job(folder, config, *assemble(config, images)) for folder, config in configs.items()]

    for job in jobs:
        in_all(partial(require_reachable_target, job.config, job.regularizer, images.example))
    path = from_leader(lambda: _open_runs(dataset, options, jobs))
    # A request to terminate ends a run as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if leads():
            _train_and_show(options, jobs, images, path)
        else:
            _train_along(jobs, images, path)
    except KeyboardInterrupt:
        if leads():
            Display().message(f"interrupted; resume with: {_resume_command(dataset, options, path)}")
        return 130
    return 0


def _configuration(dataset: str, settings: Mapping[str, Any], options: RunOptions) -> TrainingConfig:
    """Complete the configuration: from the stored run if it is resumed, from the defaults otherwise."""
    if options.resume and options.overwrite:
        raise GossamerError("`--resume` continues a run and `--overwrite` deletes it. Give one of them.")
    if options.resume and options.run_dir is None:
        raise GossamerError("`--resume` needs `--run-dir`, the directory of the run.")
    if options.resume and options.run_dir is not None:
        if not RunDirectory(options.run_dir).config.exists():
            raise GossamerError(
                f"`--resume`: there is no run in {options.run_dir}, which has no config.json. Give the directory of a "
                "run, or leave `--resume` out to start a new one there."
            )
        return replace(RunDirectory(options.run_dir).read_config(), dataset=dataset, **settings)
    name = settings.get("regularizer", _DEFAULT_REGULARIZER)
    spec = regularizer_spec(name)
    if dataset not in SETTINGS:
        raise GossamerError(f"Unknown data set {dataset!r}. Available: {', '.join(SETTINGS)}.")
    for option in _OF_SOME_REGULARIZERS:
        if option in settings and option not in spec.options:
            raise GossamerError(f"`--{option}` has no effect on regularizer {name!r}. Leave it out.")
    target = next((each.removeprefix("target_") for each in settings if each.startswith("target_")), None)
    chosen: dict[str, Any] = {**defaults(dataset, name, target), "regularizer": name, **settings}
    return TrainingConfig(dataset=dataset, **chosen)


def _compared(config: TrainingConfig, options: RunOptions) -> dict[str, TrainingConfig]:
    """Return the configurations of the baselines to train; of a run that is resumed, those that it has already."""
    if not options.compare:
        return {}
    baselines = _baselines(config)
    if options.resume and options.run_dir is not None:
        runs = {folder: RunDirectory(options.run_dir / folder) for folder in baselines}
        return {folder: runs[folder].read_config() for folder in baselines if runs[folder].config.exists()}
    return baselines


def _baselines(config: TrainingConfig) -> dict[str, TrainingConfig]:
    """Return the configurations of the baselines by subfolder, without the one that equals the run itself."""
    return {folder: _baseline(config, name) for folder, name in _BASELINES.items() if name != config.regularizer}


def _baseline(config: TrainingConfig, name: str) -> TrainingConfig:
    """Return the configuration of a baseline, at the same target if there is one."""
    if config.target is not None and name != "none":
        return replace(config, regularizer=name, strength=0.0, a=None, s=None, balance=None, groups=None)
    without: dict[str, Any] = {each.name: None for each in fields(config) if each.name.startswith("target_")}
    strength = defaults(config.dataset, name)["strength"]
    return replace(config, regularizer=name, strength=strength, a=None, s=None, balance=None, groups=None, **without)


def _open_runs(dataset: str, options: RunOptions, jobs: list[_Job]) -> Path:
    """Open all run directories before the first training, and write the options of the command."""
    path = options.run_dir or _new_folder(dataset)
    if options.overwrite:
        clear(path, _BASELINES)
    for job in jobs:
        open_run(path / job.folder, job.config, resume=options.resume)
    if not options.resume:
        write_atomically(RunDirectory(path).options, to_toml(_used(jobs[0].config, options)).encode())
    return path


def _new_folder(dataset: str) -> Path:
    """Create a folder that no other run has, not even one that starts in the same second."""
    first = Path("runs") / f"{dataset}-{datetime.now():%Y%m%d-%H%M%S}"
    path, number = first, 1
    while True:
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            number += 1
            path = first.with_name(f"{first.name}-{number}")
        else:
            return path


def _train_and_show(options: RunOptions, jobs: list[_Job], dataset: Dataset, path: Path) -> None:
    display = Display(quiet=options.as_json, silent=options.quiet)
    runs = [RunDirectory(path / job.folder) for job in jobs]
    for job, run in zip(jobs, runs, strict=True):
        with display.training(job.config) as show:
            for metrics in train(job.model, dataset, job.regularizer, job.config, run):
                show(metrics)
    results = [run.read_result() for run in runs]
    figure = summary_figure(runs)
    display.summary(dataset, results)
    if not (options.as_json or options.quiet):
        show_shrunk(runs[0], display)
    display.files(path, figure)
    show_report(path, display)
    if options.as_json:
        print(_json_line(results[0], path))


def _used(config: TrainingConfig, options: RunOptions) -> dict[str, Any]:
    """Return the options that train the run again."""
    spec = regularizer_spec(config.regularizer)
    names = [name for name, each in settings_of(TrainingConfig).items() if each.is_option]
    effective = [name for name in names if name not in _OF_SOME_REGULARIZERS or name in spec.options]
    values = {name: getattr(config, name) for name in ("dataset", *effective)}
    return {**values, "compact": options.compact, "compare": options.compare, "data_dir": options.data_dir}


def _train_along(jobs: list[_Job], dataset: Dataset, path: Path) -> None:
    """What the other processes of a distributed training do."""
    for job in jobs:
        for _ in train(job.model, dataset, job.regularizer, job.config, RunDirectory(path / job.folder)):
            pass


def _resume_command(dataset: str, options: RunOptions, path: Path) -> str:
    words = [*launcher(), "train", dataset, "--resume", "--run-dir", str(path)]
    words += [] if options.data_dir is None else ["--data-dir", str(options.data_dir)]
    words += [] if options.compare else ["--no-compare"]
    words += ["--distributed"] if options.distributed else []
    return shlex.join(words)


def _json_line(result: RunResult, path: Path) -> str:
    return json.dumps(
        {
            "dataset": result.dataset,
            "regularizer": result.regularizer,
            "seed": result.seed,
            "accuracy": result.accuracy,
            "params_kept": result.params_kept,
            "flops_kept": result.flops_kept,
            "run_dir": str(path),
        }
    )
