"""`gossamer report`: the HTML page of a run, a sweep or a path, with the commands that make it again."""

from __future__ import annotations

import json
import shlex
import webbrowser
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from gossamer.errors import GossamerError
from gossamer.visualization import Command, check_plotly
from gossamer_lab.cli.display import Display
from gossamer_lab.cli.options import COMPACTIONS, command_line
from gossamer_lab.reporting.path_report import PATH_FILE, write_path_report
from gossamer_lab.reporting.report import compared_runs, write_report
from gossamer_lab.reporting.study_report import STUDY_FILE, write_study_report
from gossamer_lab.training import RunDirectory, TrainingConfig, defaults, regularizer_spec
from gossamer_lab.training.fields import settings_of

__all__ = ["OPTIONS", "run_report", "show_report", "train_command", "write_run_report"]

# The fields of a configuration that `gossamer train` has an option for.
OPTIONS = tuple(name for name, each in settings_of(TrainingConfig).items() if each.is_option)


def run_report(paths: Sequence[Path], output: Path | None, *, show: bool, quiet: bool, as_json: bool) -> None:
    """Write the page of a sweep or a path, or of the first run, compared with the others; print its path."""
    torch.set_num_threads(1)
    first, *others = paths
    if (writer := _writer(first)) is None:
        page = write_run_report(first, output, others)
    elif others:
        raise GossamerError(f"{first} is no run; received {len(others)} more. Runs alone are compared on one page.")
    else:
        page = writer(first, output)
    if show:
        webbrowser.open(page.resolve().as_uri())
    if as_json:
        print(json.dumps({"report": str(page)}))
    elif not quiet:
        print(page)


def _writer(folder: Path) -> Callable[[Path, Path | None], Path] | None:
    """What writes the page of a sweep or a path; None for a run."""
    writers = {STUDY_FILE: write_study_report, PATH_FILE: write_path_report}
    return next((writer for file, writer in writers.items() if (folder / file).exists()), None)


def show_report(path: Path, display: Display) -> None:
    """Write the page of what has just ended and say where it is; without Plotly, say how to get it."""
    try:
        check_plotly()
    except GossamerError as error:
        display.message(f"no report was written: {error}")
        return
    writer = _writer(path) or write_run_report
    display.text(f"report:           {writer(path, None)}")


def write_run_report(path: Path, output: Path | None = None, others: Sequence[Path] = ()) -> Path:
    """Write the page of the run in `path`, by default into its folder, beside the runs it was compared with."""
    run = RunDirectory(path)
    beside = compared_runs(run)
    words = [path, *others, *([] if output is None else ["--output", output])]
    commands: list[Command] = []
    if run.config.exists():
        commands = [
            train_command(run.read_config(), path, compare=bool(beside)),
            Command("Shrink the trained network again, and save it", shlex.join(["gossamer", "shrink", str(path)])),
            Command("Make this page again", shlex.join(["gossamer", "report", *map(str, words)])),
        ]
    compared = [*beside, *(RunDirectory(one) for one in others)]
    return write_report(run, output or run.report, compared=compared, commands=commands)


def train_command(config: TrainingConfig, path: Path, *, compare: bool) -> Command:
    """The command that trains with this configuration; settings that have no option are named in its purpose."""
    absent = {"strength", "a", "s"} - set(regularizer_spec(config.regularizer).options)
    options: dict[str, Any] = {name: getattr(config, name) for name in OPTIONS if name not in absent}
    usual = TrainingConfig(dataset=config.dataset, **defaults(config.dataset, config.regularizer))  # type: ignore[arg-type]
    names = [field.name for field in fields(TrainingConfig) if field.name not in (*OPTIONS, "dataset")]
    differing = [name for name in names if getattr(config, name) != getattr(usual, name)]
    if "compact_every" in differing and config.compact_every == max(1, config.epochs // COMPACTIONS):
        options["compact"] = True
        differing.remove("compact_every")
    options |= {"no_compare": not compare, "run_dir": f"{path}-again"}
    without = ", ".join(f"{name} = {getattr(config, name)}" for name in differing)
    purpose = f"Train it again (there is no option for {without})" if without else "Train it again"
    return Command(purpose, command_line(["gossamer", "train", config.dataset], options))
