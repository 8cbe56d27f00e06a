"""`gossamer report`: the HTML page of a run, with the commands that make the run again."""

from __future__ import annotations

import json
import shlex
import webbrowser
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import torch

from gossamer.errors import GossamerError
from gossamer.visualization import Command, check_plotly
from gossamer_lab.cli.display import Display
from gossamer_lab.cli.options import COMPACTIONS
from gossamer_lab.reporting.report import compared_runs, write_report
from gossamer_lab.training import RunDirectory, TrainingConfig, defaults, regularizer_spec
from gossamer_lab.training.fields import settings_of

__all__ = ["OPTIONS", "run_report", "show_report", "train_command", "write_run_report"]

# The fields of a configuration that `gossamer train` has an option for.
OPTIONS = tuple(name for name, each in settings_of(TrainingConfig).items() if each.is_option)


def run_report(paths: Sequence[Path], output: Path | None, show: bool, as_json: bool) -> None:
    """Write the page of the first run, compared with the others; print its path."""
    torch.set_num_threads(1)
    page = write_run_report(paths[0], output, paths[1:])
    if show:
        webbrowser.open(page.resolve().as_uri())
    print(json.dumps({"report": str(page)}) if as_json else page)


def show_report(path: Path, display: Display) -> None:
    """Write the page of a run that has just ended and say where it is; without Plotly, say how to get it."""
    try:
        check_plotly()
    except GossamerError as error:
        display.message(f"no report was written: {error}")
        return
    display.text(f"report:           {write_run_report(path)}")


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
    options = [_option(name, getattr(config, name)) for name in OPTIONS if name not in absent]
    usual = TrainingConfig(dataset=config.dataset, **defaults(config.dataset, config.regularizer))  # type: ignore[arg-type]
    names = [field.name for field in fields(TrainingConfig) if field.name not in (*OPTIONS, "dataset")]
    differing = [name for name in names if getattr(config, name) != getattr(usual, name)]
    if "compact_every" in differing and config.compact_every == max(1, config.epochs // COMPACTIONS):
        options.append(["--compact"])
        differing.remove("compact_every")
    options += [[] if compare else ["--no-compare"], ["--run-dir", f"{path}-again"]]
    without = ", ".join(f"{name} = {getattr(config, name)}" for name in differing)
    purpose = f"Train it again (there is no option for {without})" if without else "Train it again"
    lines = [["gossamer", "train", config.dataset], *(option for option in options if option)]
    return Command(purpose, " \\\n    ".join(shlex.join(line) for line in lines))


def _option(name: str, value: object) -> list[str]:
    option = f"--{name.replace('_', '-')}"
    if value is None or value is False:
        return []
    return [option] if value is True else [option, str(value)]
