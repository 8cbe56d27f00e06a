"""``gossamer train``: one run, beside it the runs it is compared with, and what is said about them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import torch
from torch import nn

from gossamer.errors import GossamerError
from gossamer.regularizers import Regularizer
from gossamer_lab.cli.data import download_bars
from gossamer_lab.cli.display import Display
from gossamer_lab.cli.report import show_report
from gossamer_lab.cli.shrink import show_small
from gossamer_lab.data import Dataset, obtain
from gossamer_lab.reporting import summary_figure
from gossamer_lab.training import (
    SETTINGS,
    RunDirectory,
    RunResult,
    TrainingConfig,
    assemble,
    clear,
    defaults,
    images_of,
    method,
    open_run,
    train,
)

__all__ = ["Request", "run_training"]

# How often, at most, dead units leave a network that is trained with `--compact`.
_COMPACTIONS = 10

# Folder in the run's own, and name of the regularizer, of what a run is compared with.
_BASELINES = {"dense": "none", "l1": "l1"}


@dataclass(frozen=True)
class Request:
    """The options as they were given; None where one was left out."""

    dataset: str
    regularizer: str | None = None
    strength: float | None = None
    a: float | None = None
    s: float | None = None
    cost_exponent: float | None = None
    slant: float | None = None
    epochs: int | None = None
    tolerance: float | None = None
    seed: int | None = None
    run_dir: Path | None = None
    data_dir: Path | None = None
    resume: bool = False
    overwrite: bool = False
    compare: bool = True
    compact: bool = False
    regrow: bool = False
    as_json: bool = False

    @property
    def settings(self) -> dict[str, str | float]:
        """The options that are part of the configuration, those only that were given."""
        names = ("regularizer", "strength", "a", "s", "cost_exponent", "slant", "epochs", "tolerance", "seed")
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return {**given, "regrow": True} if self.regrow else given


@dataclass(frozen=True)
class Job:
    """One network to train: ``folder`` lies in the folder of the main run, and is empty for that run itself."""

    folder: str
    config: TrainingConfig
    model: nn.Module
    regularizer: Regularizer | None


def run_training(request: Request) -> int:
    """Do what was asked for and return the exit code of the command."""
    # One thread: the networks are small, and sums over another number of threads would differ in their last bits.
    torch.set_num_threads(1)
    config = _configuration(request)
    with download_bars() as progress:
        obtain(config.dataset, request.data_dir, progress)
    dataset = images_of(config, request.data_dir)
    if request.compact:
        config = replace(config, compact_every=max(1, config.epochs // _COMPACTIONS))
    configs = {"": config, **(_baselines(config) if request.compare else {})}
    jobs = [_job(folder, config, dataset) for folder, config in configs.items()]

    path = _open_runs(request, jobs)
    try:
        _train_and_show(request, jobs, dataset, path)
    except KeyboardInterrupt:
        Display().say(f"interrupted; go on with: {_resume_command(request, path)}")
        return 130
    return 0


def _configuration(request: Request) -> TrainingConfig:
    """Settle what was left open: by the stored run when one is resumed, by the defaults otherwise."""
    if request.resume and request.overwrite:
        raise GossamerError("`--resume` goes on with a run and `--overwrite` deletes it. Give one of them.")
    if request.resume and request.run_dir is None:
        raise GossamerError("`--resume` needs `--run-dir`, the folder of the run that is to go on.")
    settings = request.settings
    if request.resume and request.run_dir is not None and RunDirectory(request.run_dir).config.exists():
        stored = RunDirectory(request.run_dir).read_config()
        return replace(stored, dataset=request.dataset, **settings)  # type: ignore[arg-type]
    name = request.regularizer or "integrated-tl1"
    known = method(name)
    if request.dataset not in SETTINGS:
        raise GossamerError(f"Unknown data set {request.dataset!r}. There is: {', '.join(SETTINGS)}.")
    for option in ("strength", "a", "s"):
        if option in settings and option not in known.options:
            raise GossamerError(f"`--{option}` means nothing to regularizer {name!r}. Leave it out.")
    chosen = {**defaults(request.dataset, name), "regularizer": name, **settings}
    return TrainingConfig(dataset=request.dataset, **chosen)  # type: ignore[arg-type]


def _baselines(config: TrainingConfig) -> dict[str, TrainingConfig]:
    """The same training without a penalty, and with l1, each in its folder; not the one that the run itself is."""
    return {
        folder: replace(config, regularizer=name, strength=defaults(config.dataset, name)["strength"], a=None, s=None)
        for folder, name in _BASELINES.items()
        if name != config.regularizer
    }


def _job(folder: str, config: TrainingConfig, dataset: Dataset) -> Job:
    model, regularizer = assemble(config, dataset)
    return Job(folder, config, model, regularizer)


def _open_runs(request: Request, jobs: list[Job]) -> Path:
    """Make sure of all folders before the first network is trained."""
    path = request.run_dir or _new_folder(request.dataset)
    if request.overwrite:
        clear(path, _BASELINES)
    for job in jobs:
        open_run(path / job.folder, job.config, resume=request.resume)
    return path


def _new_folder(dataset: str) -> Path:
    """Make a folder that no other run has, not even one that starts in the same second."""
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


def _train_and_show(request: Request, jobs: list[Job], dataset: Dataset, path: Path) -> None:
    display = Display(quiet=request.as_json)
    runs = [RunDirectory(path / job.folder) for job in jobs]
    for job, run in zip(jobs, runs, strict=True):
        with display.training(job.config) as show:
            for metrics in train(job.model, dataset, job.regularizer, job.config, run):
                show(metrics)
    results = [run.read_result() for run in runs]
    figure = summary_figure(runs)
    display.summary(dataset, results)
    if not request.as_json:
        show_small(runs[0], display)
    display.files(path, figure)
    show_report(path, display)
    if request.as_json:
        print(_json_line(results[0], path))


def _resume_command(request: Request, path: Path) -> str:
    words = ["gossamer train", request.dataset, "--resume", "--run-dir", str(path)]
    return " ".join(words + ([] if request.compare else ["--no-compare"]))


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
