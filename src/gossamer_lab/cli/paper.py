"""The command `gossamer paper`: the experiments by name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gossamer_lab.cli.app import app
from gossamer_lab.cli.data import download_bars
from gossamer_lab.cli.options import DataDir, Json, Quiet
from gossamer_lab.paper import EXPERIMENTS
from gossamer_lab.training.settings import SETTINGS

if TYPE_CHECKING:
    from gossamer_lab.paper.experiments import Request
    from gossamer_lab.reporting.tables import Table

__all__ = ["paper"]


@app.command(epilog="Example: gossamer paper table --results experiments")
def paper(
    name: Annotated[
        str,
        typer.Argument(
            help=f"Experiment: {', '.join(EXPERIMENTS)}, or all.", autocompletion=lambda: [*EXPERIMENTS, "all"]
        ),
    ],
    train: Annotated[
        bool, typer.Option("--train", help="Tune and train what the result files lack. May take many hours.")
    ] = False,
    write: Annotated[
        bool, typer.Option("--write", help="Write the Markdown tables and figures again, from the result files.")
    ] = False,
    missing: Annotated[
        bool, typer.Option("--missing", help="List what --train would tune and train, and do nothing else.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Smoke test: train for a few epochs on a few images, in --runs.")
    ] = False,
    only: Annotated[
        list[str] | None, typer.Option(help="Restrict to this data set; may be repeated.", show_default=False)
    ] = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds, from 0.", min=1)] = 3,
    results: Annotated[
        Path,
        typer.Option(
            envvar="GOSSAMER_EXPERIMENTS", help="Folder of result files: `experiments` of the gossamer repository."
        ),
    ] = Path("experiments"),
    into: Annotated[
        Path | None,
        typer.Option(help="Train everything but the tuning again, into this folder.", show_default=False),
    ] = None,
    runs: Annotated[Path, typer.Option(help="Folder of run directories, which may be deleted afterwards.")] = Path(
        "runs/paper"
    ),
    data_dir: DataDir = None,
    workers: Annotated[int, typer.Option(help="Parallel trainings, with one thread each.", min=1)] = 2,
    page: Annotated[
        Path | None,
        typer.Option(help="Documentation page to update from the Markdown tables in --results.", show_default=False),
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Show a table or figure of the paper from the result files.

    Nothing is trained without --train, --quick or --into, and nothing is written without one of these or --write.

    The same command resumes an interrupted training.
    """
    from gossamer.errors import GossamerError
    from gossamer_lab.paper.experiments import SEEDS, Request
    from gossamer_lab.paper.workspace import Workspace

    separate = quick or into is not None
    _check(name, only or [], whole=not only and seeds == len(SEEDS), changes=train or write, separate=separate)
    _check_folders(results, into, page, quick=quick)
    if quick:  # never beside real results
        workspace = Workspace(runs / "quick", runs / "quick" / "tuning", runs / "quick" / "runs", data_dir, workers)
    else:
        run_folder = runs if into is None else into / "runs"
        workspace = Workspace(into or results, results / "tuning", run_folder, data_dir, workers)
    request = Request(workspace, tuple(only or ()), tuple(range(seeds)), quick, report=_nothing if quiet else _report)
    names = [each for each in EXPERIMENTS if each == name or (name == "all" and _uses_any(each, request.datasets))]
    if missing:
        _list_missing(names, request)
        return
    shown, errors = {}, _train(names, request, quiet) if train or separate else {}
    writes = write or separate or (train and request.is_whole)
    for each in names:
        if each not in errors:
            try:
                shown[each] = _show(each, request, writes)
            except GossamerError as error:  # the other experiments are shown
                errors[each] = error
    if page is not None:
        _fill_page(page, workspace.results)
    if as_json or not quiet:
        _print(name, shown, as_json)
    if errors:
        raise errors[name] if name in errors else _error("\n".join(f"{each}: {errors[each]}" for each in errors))


@dataclass(frozen=True)
class _Shown:
    """What is printed of an experiment."""

    tables: Sequence[Table]
    files: Sequence[Path]
    json: dict[str, Any]


def _show(name: str, request: Request, write: bool) -> _Shown:
    """Read an experiment's results and write its files if requested."""
    from gossamer_lab.paper.experiments import load_experiment, missing_results

    experiment = load_experiment(name)
    results = experiment.read(request) if write or experiment.has_tables else None
    if write:
        experiment.write(results, request)
    files = [file for file in experiment.output_files(request) if file.exists()]
    if not files and not experiment.has_tables:
        raise missing_results(experiment.output_files(request))
    if results is None:
        return _Shown((), files, {})
    return _Shown(experiment.tables(results), files, experiment.json(results))


def _print(name: str, shown: dict[str, _Shown], as_json: bool) -> None:
    from rich.console import Console

    from gossamer_lab.reporting.tables import print_tables

    if as_json and shown:
        objects = {each: one.json for each, one in shown.items()}
        typer.echo(json.dumps(objects if name == "all" else objects[name]))
        return
    console = Console(highlight=False)
    for one in shown.values():
        print_tables(console, one.tables)
        for file in one.files:
            typer.echo(str(file))


def _train(names: Sequence[str], request: Request, quiet: bool) -> dict[str, Exception]:
    """Tune and train what is missing; return the errors by experiment."""
    import torch

    from gossamer.errors import GossamerError
    from gossamer_lab.cli.progress import progress_reporter
    from gossamer_lab.data import obtain
    from gossamer_lab.paper.experiments import load_experiment
    from gossamer_lab.paper.plan import make_missing

    torch.set_num_threads(1)
    experiments = {name: load_experiment(name) for name in names}
    # Before the worker processes start, which would all download the same files.
    for dataset in dict.fromkeys(each for experiment in experiments.values() for each in experiment.datasets):
        if not request.datasets or dataset in request.datasets:
            with download_bars() as on_download:
                obtain(dataset, request.workspace.data, on_download)
    errors: dict[str, Exception] = {}
    with progress_reporter(silent=quiet) as reporter:
        for name, experiment in experiments.items():
            try:
                make_missing(experiment, request, reporter)
            except GossamerError as error:  # the other experiments can still be trained
                errors[name] = error
    return errors


def _list_missing(names: Sequence[str], request: Request) -> None:
    from gossamer_lab.paper.experiments import load_experiment
    from gossamer_lab.paper.plan import find_missing

    for name in names:
        for line in find_missing(load_experiment(name), request).lines() or ["nothing is missing"]:
            typer.echo(f"{name}: {line}")


def _fill_page(page: Path, results: Path) -> None:
    """Update a documentation page from the Markdown files of the experiments."""
    from gossamer_lab.reporting.page import fill_page

    def section(name: str) -> str:
        file = results / name
        return file.read_text(encoding="utf-8") if file.exists() else f"(missing: {name})"

    fill_page(page, section)


def _uses_any(name: str, datasets: Sequence[str]) -> bool:
    """Whether an experiment uses one of the data sets; always true if there is no restriction."""
    from gossamer_lab.paper.experiments import load_experiment

    return not datasets or any(dataset in datasets for dataset in load_experiment(name).datasets)


def _check(name: str, only: Sequence[str], *, whole: bool, changes: bool, separate: bool) -> None:
    """Refuse unknown names, and parts that would replace the whole in the result files."""
    if name not in (*EXPERIMENTS, "all"):
        raise _error(f"Unknown experiment {name!r}. Available: {', '.join(EXPERIMENTS)}, all.")
    if unknown := [dataset for dataset in only if dataset not in SETTINGS]:
        raise _error(f"Unknown data set {unknown[0]!r}. Available: {', '.join(SETTINGS)}.")
    if only and name != "all" and not _uses_any(name, only):
        raise _error(f"Experiment {name!r} does not use {', '.join(only)}. Leave `--only` out.")
    if not whole and changes and not separate and name not in ("table", "plain"):
        raise _error(
            "`--only` and `--seeds` would replace the whole in the result files by a part. Add `--into FOLDER`."
        )


def _check_folders(results: Path, into: Path | None, page: Path | None, *, quick: bool) -> None:
    """Refuse folders that do not exist, and outputs that do not fit together."""
    if quick and (into or page):
        raise _error("`--quick` is a smoke test without results. Leave `--into` and `--page` out.")
    if into and page:
        raise _error("`--page` shows the results in `--results`, and `--into` writes elsewhere. Leave one of them out.")
    if not quick and not results.is_dir():
        raise _error(
            f"`gossamer paper` needs the result files in the folder `experiments` of the gossamer repository, and "
            f"{str(results)!r} is not a folder. Give it with `--results DIR` or the environment variable "
            "GOSSAMER_EXPERIMENTS."
        )


def _report(message: str) -> None:
    typer.echo(message, err=True)


def _nothing(message: str) -> None:
    del message


def _error(message: str) -> Exception:
    from gossamer.errors import GossamerError  # imports torch, which `gossamer --help` does without

    return GossamerError(message)
