"""The commands and their options.

Modules that need torch are imported when a command runs, so that `--help` is fast.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from gossamer_lab.cli.data import data
from gossamer_lab.cli.options import DataDir, Json, RunOptions, given, with_options
from gossamer_lab.training.config import TrainingConfig
from gossamer_lab.training.fields import settings_of
from gossamer_lab.training.settings import SETTINGS

__all__ = ["app", "main"]

app = typer.Typer(
    name="gossamer",
    help="Train networks whose weights become exactly zero.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(data, name="data")


def main() -> None:
    """Run the command. An error of the user is one line on stderr and exit code 2, without a traceback."""
    try:
        app()
    except Exception as error:
        if not _is_user_error(error):
            raise
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def _is_user_error(error: Exception) -> bool:
    from gossamer.errors import GossamerError

    return isinstance(error, GossamerError | OSError)


def _print_version(requested: bool) -> None:
    if requested:
        print(version("gossamer"))
        raise typer.Exit


@app.callback()
def _command(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Train networks whose weights become exactly zero."""
    del show_version  # handled by its callback


def train(dataset: Annotated[str, typer.Argument(help=f"Data set: {', '.join(SETTINGS)}.")], **options: Any) -> None:
    """Train the paper's network for a data set so that most of its weights become exactly zero."""
    from gossamer_lab.cli.train import run_training

    settings = given(TrainingConfig, options)
    run = RunOptions(**{name: options[name] for name in settings_of(RunOptions)})
    raise typer.Exit(run_training(dataset, settings, run))


app.command("train")(with_options(train, Training=TrainingConfig, Run=RunOptions))


@app.command()
def sweep(
    dataset: Annotated[str, typer.Argument(help=f"Data set: {', '.join(SETTINGS)}.")],
    vary: Annotated[
        list[str],
        typer.Option(help="What is searched: strength=1e-4,1e-3 for a grid, strength=1e-5:1e-2 with --trials. Repeat."),
    ],
    trials: Annotated[
        int | None, typer.Option(help="Search the Pareto front with so many trainings.", show_default="grid", min=1)
    ] = None,
    regularizer: Annotated[str, typer.Option(help="Regularizer.")] = "integrated-tl1",
    epochs: Annotated[
        int | None, typer.Option(help="Epochs of each training.", show_default="by data set", min=1)
    ] = None,
    workers: Annotated[int, typer.Option(help="Processes on this machine, one thread each.", min=1)] = 1,
    storage: Annotated[
        str, typer.Option(help="File, or postgresql://user@host/database, which any number of machines may share.")
    ] = "sweep.db",
    name: Annotated[str | None, typer.Option(help="Name of the study.", show_default="data set, regularizer")] = None,
    output: Annotated[Path, typer.Option(help="Folder of runs, table and figure.")] = Path("sweeps"),
    seed: Annotated[int, typer.Option(help="Seed of the trainings and of the sampler.", min=0)] = 0,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Train at many points: a grid, or a search for the best accuracies at all sizes. Run it again to go on.

    The same command on other machines, with the same --storage postgresql://..., works on the same study.
    """
    from gossamer_lab.cli.sweep import SweepOptions, run_sweep

    options = SweepOptions(
        dataset, tuple(vary), trials, regularizer, epochs, workers, storage, name, output, seed, data_dir, as_json
    )
    raise typer.Exit(run_sweep(options))


@app.command()
def shrink(run: Annotated[Path, typer.Argument(help="Directory of a finished run.")], as_json: Json = False) -> None:
    """Remove the dead units of a trained network, verify that its outputs stay the same, and save it."""
    from gossamer_lab.cli.shrink import run_shrink

    run_shrink(run, as_json)


@app.command()
def measure(
    file: Annotated[Path, typer.Argument(help="Network file of `gossamer train` or `gossamer shrink`.")],
    as_json: Json = False,
) -> None:
    """Report what is kept of a network: weights, units, MACs; and its file size and latency."""
    from gossamer_lab.cli.shrink import run_measure

    run_measure(file, as_json)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of finished runs; the page is about the first.")],
    output: Annotated[
        Path | None, typer.Option(help="The page to write.", show_default="report.html in the first folder")
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    as_json: Json = False,
) -> None:
    """Write one HTML page on a run: training, layers, zeros, the plan, size and latency."""
    from gossamer_lab.cli.report import run_report

    run_report(runs, output, show, as_json)
