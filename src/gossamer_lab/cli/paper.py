"""``gossamer paper``: the paper's experiments by name."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gossamer.errors import GossamerError
from gossamer_lab.cli.app import app
from gossamer_lab.cli.data import download_bars

if TYPE_CHECKING:
    from gossamer_lab.paper import Report

__all__ = ["paper"]


@app.command()
def paper(
    name: Annotated[
        str,
        typer.Argument(
            help="table, plain, boxplots, tradeoff, convergence, filters, effect-of-a, interpretation, contours, "
            "references, levers, or all."
        ),
    ],
    train: Annotated[
        bool, typer.Option("--train", help="Make what the result files lack. All of it takes many hours.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="A few epochs on a few images: shows that all works, and nothing else.")
    ] = False,
    only: Annotated[list[str] | None, typer.Option(help="Only this data set; may be given several times.")] = None,
    seeds: Annotated[int, typer.Option(help="How many seeds, from 0 on.", min=1)] = 3,
    results: Annotated[Path, typer.Option(help="Folder of the result files; what they have is not made again.")] = Path(
        "experiments"
    ),
    into: Annotated[
        Path | None,
        typer.Option(help="Make everything but the tuning anew, with result files in this folder."),
    ] = None,
    runs: Annotated[Path, typer.Option(help="Folder of checkpoints and weights, which may be deleted.")] = Path(
        "runs/paper"
    ),
    data_dir: Annotated[Path | None, typer.Option(help="Folder that is searched for data first.")] = None,
    workers: Annotated[int, typer.Option(help="Trainings at a time, each with one thread.", min=1)] = 2,
    page: Annotated[
        Path | None, typer.Option(help="Write the tables of this page of documentation anew, from the result files.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, and nothing else, on stdout.")
    ] = False,
) -> None:
    """Show a table or a figure of the paper as the result files have it; with `--train`, make what they lack first.

    Stopped at any moment, the same command goes on where it was.
    """
    import torch

    from gossamer_lab.cli.progress import watching
    from gossamer_lab.paper import EXPERIMENTS, Place, Request, fill_page

    _require_sense(name, only or [], seeds, quick, into, page)
    torch.set_num_threads(1)
    names = [each for each in EXPERIMENTS if name == each or (name == "all" and _has_any(each, only or []))]
    if quick:  # never beside real results, from which these could not be told
        results, runs = runs / "quick", runs / "quick" / "runs"
    may_train = train or quick or into is not None
    place = Place(
        into or results, results / "tuning", runs if into is None else into / "runs", data_dir, workers, may_train
    )
    if may_train:  # before the workers start, which would all fetch the same
        _obtain([dataset for each in names for dataset in EXPERIMENTS[each].datasets], only or [], data_dir)
    reports, errors = {}, {}
    with watching() as watcher:
        request = Request(place, watcher, tuple(only or ()), tuple(range(seeds)), quick)
        for each in names:
            try:
                reports[each] = EXPERIMENTS[each].run(request)
            except GossamerError as error:  # the others can still be made
                errors[each] = error
    if page is not None:
        fill_page(page, place.results)
    if as_json and reports:
        made = {each: report.json for each, report in reports.items()}
        typer.echo(json.dumps(made if name == "all" else made[name]))
    else:
        _show(reports.values())
    if errors:
        raise GossamerError("\n".join(f"{each}: {error}" for each, error in errors.items()))


def _has_any(name: str, datasets: Sequence[str]) -> bool:
    """Whether an experiment trains on one of the data sets; where none is named, on any or none."""
    from gossamer_lab.paper import EXPERIMENTS

    return not datasets or any(dataset in datasets for dataset in EXPERIMENTS[name].datasets)


def _require_sense(
    name: str, only: Sequence[str], seeds: int, quick: bool, into: Path | None, page: Path | None
) -> None:
    """Refuse what is not there, and what would spoil the result files."""
    from gossamer_lab.data import LOADERS
    from gossamer_lab.paper import EXPERIMENTS, SEEDS

    if name not in (*EXPERIMENTS, "all"):
        raise GossamerError(f"Unknown experiment {name!r}. There is: {', '.join(EXPERIMENTS)}, all.")
    if unknown := [dataset for dataset in only if dataset not in LOADERS]:
        raise GossamerError(f"Unknown data set {unknown[0]!r}. There is: {', '.join(LOADERS)}.")
    if name != "all" and not _has_any(name, only):
        there = ", ".join(EXPERIMENTS[name].datasets) or "no data set"
        raise GossamerError(f"{name} has {there}; `--only` asks for {', '.join(only)}.")
    if (only or seeds != len(SEEDS)) and not (into or quick or name in ("table", "plain")):
        raise GossamerError("A part would take the place of the whole in the result files. Add `--into FOLDER`.")
    if quick and (into or page):
        raise GossamerError("`--quick` makes no results, so `--into` and `--page` do not go with it. Leave them out.")
    if into and page:
        raise GossamerError(
            "A page shows the whole of `--results`, so `--into` does not go with `--page`. Leave one out."
        )


def _obtain(datasets: Sequence[str], only: Sequence[str], data_dir: Path | None) -> None:
    """Fetch the data sets that are not here yet."""
    from gossamer_lab.data import obtain

    for dataset in dict.fromkeys(datasets):
        if not only or dataset in only:
            with download_bars() as progress:
                obtain(dataset, data_dir, progress)


def _show(reports: Iterable[Report]) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    for report in reports:
        for shown in report.shown:
            console.print(shown)
        for file in report.files:
            console.print(str(file), markup=False, soft_wrap=True)
