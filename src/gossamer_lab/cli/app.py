"""The commands and their options.

Modules that need torch are imported when a command runs, so that `--help` is fast.
"""

from __future__ import annotations

import signal
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from gossamer_lab.cli.data import data
from gossamer_lab.cli.options import DataDir, Dataset, Json, Quiet, RunOptions, given, with_options
from gossamer_lab.training.config import TrainingConfig
from gossamer_lab.training.fields import percentage, settings_of
from gossamer_lab.training.settings import SETTINGS

__all__ = ["app", "main"]

app = typer.Typer(
    name="gossamer",
    help="Train networks whose weights become exactly zero.",
    pretty_exceptions_enable=False,
)
app.add_typer(data, name="data")


def main() -> None:
    """Run the command. An error of the user is one line on stderr and exit code 2, without a traceback."""
    try:
        app(prog_name="gossamer")
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


_NEXT_STEPS = """\
gossamer trains networks whose weights become exactly zero, and makes them smaller.

  gossamer train digits      train a sparse network beside a dense one; no download
  gossamer report RUN        see what the training did, in a browser
  gossamer shrink RUN        remove the units that do nothing
  gossamer data list         the data sets
  gossamer --help            all commands; `gossamer COMMAND --help` has their options

In your own training loop: gossamer.attach(optimizer, gossamer.integrated_tl1(model, strength=1e-3))"""


@app.callback(invoke_without_command=True)
def _command(
    context: typer.Context,
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Train networks whose weights become exactly zero."""
    del show_version  # handled by its callback
    if context.invoked_subcommand is None:
        typer.echo(_NEXT_STEPS)


def train(
    context: typer.Context,
    dataset: Annotated[
        str | None,
        typer.Argument(
            help=f"Data set: {', '.join(SETTINGS)}.", show_default=False, autocompletion=lambda: list(SETTINGS)
        ),
    ] = None,
    **options: Any,
) -> None:
    """Train the paper's network for a data set so that most of its weights become exactly zero."""
    from gossamer_lab.cli.config_file import read_options
    from gossamer_lab.cli.train import run_training

    options["dataset"] = dataset
    if options["config"] is not None:
        spoken = {name for name in options if _on_the_command_line(context, name)}
        options |= {name: value for name, value in read_options(options["config"]).items() if name not in spoken}
    if options["dataset"] is None:
        raise typer.BadParameter(f"Name a data set: {', '.join(SETTINGS)}.", param_hint="DATASET")
    settings = given(TrainingConfig, options)
    run = RunOptions(**{name: options[name] for name in settings_of(RunOptions)})
    try:
        code = run_training(options["dataset"], settings, run)
    except KeyboardInterrupt:  # before there was anything to save
        typer.echo("interrupted", err=True)
        code = 128 + signal.SIGINT
    raise typer.Exit(code)


def _on_the_command_line(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


app.command("train", epilog="Example: gossamer train digits --strength 2e-3 --run-dir runs/mine")(
    with_options(train, Training=TrainingConfig, Run=RunOptions)
)


@app.command(epilog="Example: gossamer path digits --sizes 20%,5%,2% --output runs/path")
def path(
    dataset: Dataset,
    sizes: Annotated[
        str, typer.Option(help="Targets from large to small, separated by commas.")
    ] = "50%,20%,10%,5%,2%,1%",
    kind: Annotated[str, typer.Option(help="What is counted: params, flops, dense_params or dense_flops.")] = "params",
    regularizer: Annotated[str, typer.Option(help="Regularizer, as in `gossamer train`.")] = "integrated-tl1",
    epochs: Annotated[
        int | None,
        typer.Option(
            help="Epochs of a training from scratch; the dense network takes a fifth.",
            min=1,
            show_default="by data set",
        ),
    ] = None,
    epochs_each: Annotated[
        int | None,
        typer.Option(
            help="Epochs for each target.", min=1, show_default="a fifth of all trainings from scratch in total"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed for initialisation and shuffling.", min=0)] = 0,
    output: Annotated[Path | None, typer.Option(help="Folder to write to.", show_default="runs/DATASET-path")] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Also train every target from scratch.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train the whole trade-off between accuracy and size: one target after the other, from dense to sparse."""
    from gossamer_lab.cli.path import PathOptions, run_path

    folder = output or Path("runs") / f"{dataset}-path"
    options = PathOptions(
        dataset, _sizes(sizes), kind, regularizer, epochs, epochs_each, seed, folder, compare, quiet, as_json
    )
    raise typer.Exit(run_path(options))


def _sizes(text: str) -> tuple[float, ...]:
    try:
        return tuple(percentage(size) for size in text.split(","))
    except ValueError:
        raise typer.BadParameter(
            f"sizes are numbers separated by commas, such as 20%,5%,1%; received {text!r}"
        ) from None


@app.command(epilog="Example: gossamer sweep digits --vary strength=1e-4:1e-2 --trials 20 --workers 2")
def sweep(
    dataset: Dataset,
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
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train at many points: a grid, or a search for the best accuracies at all sizes. Run it again to go on.

    The same command on other machines, with the same --storage postgresql://..., works on the same study.
    """
    from gossamer_lab.cli.workers import prepare_workers

    prepare_workers()
    from gossamer_lab.cli.sweep import SweepOptions, run_sweep

    options = SweepOptions(
        dataset, tuple(vary), trials, regularizer, epochs, workers, storage, name, output, seed, data_dir,
        quiet, as_json,
    )  # fmt: skip
    raise typer.Exit(run_sweep(options))


@app.command(epilog="Example: gossamer shrink runs/mine")
def shrink(
    run: Annotated[Path, typer.Argument(help="Directory of a finished run.")],
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Remove the dead units of a trained network, verify that its outputs stay the same, and save it."""
    from gossamer_lab.cli.shrink import run_shrink

    run_shrink(run, as_json=as_json, quiet=quiet)


@app.command(epilog="Example: gossamer export runs/mine --c net.c --onnx net.onnx")
def export(
    network: Annotated[Path, typer.Argument(help="Directory of a finished run, or a network file.")],
    c: Annotated[
        Path | None,
        typer.Option(
            "--c",
            help="C99 file to write, with its header beside it. Its functions are named after it: net.c has net_run.",
            show_default=False,
        ),
    ] = None,
    onnx: Annotated[Path | None, typer.Option("--onnx", help="ONNX file to write.", show_default=False)] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Compile the C file, run its self-test and time it beside PyTorch.")
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Write a trained network as C that stores and multiplies only its non-zero weights, or as ONNX."""
    from gossamer_lab.cli.export import ExportOptions, run_export

    run_export(network, ExportOptions(c, onnx, check, quiet, as_json))


@app.command(epilog="Example: gossamer measure runs/mine/small.safetensors")
def measure(
    file: Annotated[Path, typer.Argument(help="Network file of `gossamer train` or `gossamer shrink`.")],
    as_json: Json = False,
) -> None:
    """Report what is kept of a network: weights, units, MACs; and its file size and latency."""
    from gossamer_lab.cli.shrink import run_measure

    run_measure(file, as_json)


@app.command(epilog="Example: gossamer report runs/mine --open")
def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Folder of a run, a sweep or a path; of several runs, the page is about the first.",
            metavar="FOLDER...",
        ),
    ],
    output: Annotated[
        Path | None, typer.Option(help="The page to write.", show_default="report.html in the first folder")
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Write one HTML page: training, layers, zeros, plan and latency of a run; the trade-off of a sweep or a path."""
    from gossamer_lab.cli.report import run_report

    run_report(runs, output, show=show, quiet=quiet, as_json=as_json)
