"""The command's options.

What does the work is imported when a command runs, so that ``--help`` does not wait for torch.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from gossamer.errors import GossamerError
from gossamer_lab.cli.data import data

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
    """Run the command; what the user can mend is one line on stderr and exit code 2, without a traceback."""
    try:
        app()
    except (GossamerError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def _print_version(asked: bool) -> None:
    if asked:
        print(version("gossamer"))
        raise typer.Exit


@app.callback()
def _command(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Train networks whose weights become exactly zero."""
    del show_version  # done by its callback


@app.command()
def train(
    dataset: Annotated[
        str, typer.Argument(help="The data set: digits, mnist, fashion-mnist, pendigits, sdd or cifar-10.")
    ],
    regularizer: Annotated[
        str | None,
        typer.Option(
            help="integrated-tl1, transformed-l1, l1, l2, group-lasso, sparse-group-lasso, combined-group-exclusive, "
            "group-transformed-l1, or none.",
            show_default="integrated-tl1",
        ),
    ] = None,
    strength: Annotated[
        float | None,
        typer.Option(help="What the penalty is multiplied by.", show_default="by data set and regularizer"),
    ] = None,
    a: Annotated[
        float | None, typer.Option("--a", help="Shape of transformed l1, above 0.", show_default="by data set")
    ] = None,
    s: Annotated[
        float | None,
        typer.Option("--s", help="Least share of either penalty in a layer, 0 to 1/2.", show_default="by data set"),
    ] = None,
    cost_exponent: Annotated[
        float | None,
        typer.Option(
            help="Press harder where the multiply-adds are: strength ∝ (multiply-adds per weight)^c.",
            show_default="by data set",
        ),
    ] = None,
    slant: Annotated[
        float | None,
        typer.Option(
            help="Turn, stretch and shear the training images at random by up to this much; 0.1 is a little.",
            show_default="0",
        ),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="The most epochs of a training.", show_default="by data set")
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(help="End a phase of the training when its objective improves by less from epoch to epoch."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Of the first weights and the order of the images.", show_default="0")
    ] = None,
    run_dir: Annotated[
        Path | None, typer.Option(help="Folder of the run's files.", show_default="runs/DATASET-TIME")
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder that is searched for data first.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in --run-dir; options left out are the run's own.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Delete the files of the run in --run-dir first.")
    ] = False,
    compact: Annotated[
        bool,
        typer.Option(
            "--compact",
            help="Let dead units leave the network during training, ten times at most; on MNIST, Fashion-MNIST and "
            "CIFAR-10 they always do.",
        ),
    ] = False,
    regrow: Annotated[
        bool,
        typer.Option(
            "--regrow",
            help="In the last phase only dead units stay away, and all weights of the small network learn again.",
        ),
    ] = False,
    compare: Annotated[bool, typer.Option(help="Also train the same network without a penalty, and with l1.")] = True,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, and nothing else, on stdout.")
    ] = False,
) -> None:
    """Train the paper's network for a data set so that most of its weights become exactly zero."""
    from gossamer_lab.cli.train import Request, run_training

    request = Request(
        dataset=dataset,
        regularizer=regularizer,
        strength=strength,
        a=a,
        s=s,
        cost_exponent=cost_exponent,
        slant=slant,
        epochs=epochs,
        tolerance=tolerance,
        seed=seed,
        run_dir=run_dir,
        data_dir=data_dir,
        resume=resume,
        overwrite=overwrite,
        compact=compact,
        regrow=regrow,
        compare=compare,
        as_json=as_json,
    )
    raise typer.Exit(run_training(request))


_AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, and nothing else, on stdout.")]


@app.command()
def shrink(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")], as_json: _AsJson = False
) -> None:
    """Take the dead units out of the network of a run, verify that its outputs stay, and save it."""
    from gossamer_lab.cli.shrink import run_shrink

    run_shrink(run, as_json)


@app.command()
def measure(
    file: Annotated[Path, typer.Argument(help="A network that `train` or `shrink` has written.")],
    as_json: _AsJson = False,
) -> None:
    """Count what is left of a network: weights, units, multiply-adds; size of its file, latency."""
    from gossamer_lab.cli.shrink import run_measure

    run_measure(file, as_json)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of finished runs; the page is about the first.")],
    output: Annotated[
        Path | None, typer.Option(help="The page to write.", show_default="report.html in the first folder")
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    as_json: _AsJson = False,
) -> None:
    """Write one HTML page on a run: training, layers, zeros, the plan, size and latency."""
    from gossamer_lab.cli.report import run_report

    run_report(runs, output, show, as_json)
