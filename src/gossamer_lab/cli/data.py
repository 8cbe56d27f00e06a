"""``gossamer data``: which data sets are here, getting them, checking them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gossamer.errors import GossamerError

if TYPE_CHECKING:
    from gossamer_lab.data import Source
    from gossamer_lab.data.fetching import Progress

__all__ = ["data", "download_bars"]

data = typer.Typer(help="The data sets: which are here, getting them, checking them.", no_args_is_help=True)

_DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        help="A folder of data sets, looked into before the one in GOSSAMER_DATA and before the cache.",
        show_default=False,
    ),
]


@data.command("list")
def list_datasets(
    data_dir: _DataDir = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, and nothing else, on stdout.")
    ] = False,
) -> None:
    """List the data sets: their sizes, and where their files were found."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from gossamer_lab.data import SOURCES

    places = {name: _place(source, data_dir) for name, source in SOURCES.items()}
    if as_json:
        rows = [
            {
                "name": source.name,
                "input_shape": source.input_shape,
                "train": source.train,
                "test": source.test,
                "classes": source.classes,
                "place": places[source.name],
            }
            for source in SOURCES.values()
        ]
        typer.echo(json.dumps({"datasets": rows}))
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("data set", no_wrap=True)
    for heading in ("image", "train", "test", "classes"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("where", no_wrap=True)
    for name, source in SOURCES.items():
        table.add_row(
            name,
            "x".join(map(str, source.input_shape)),
            f"{source.train:,}",
            f"{source.test:,}",
            str(source.classes),
            places[name] or f"not here: gossamer data fetch {name}",
        )
    console = Console(highlight=False, markup=False)
    # A path is for copying: rather a long line than one that is cut.
    console.width = max(console.width, console.measure(table, options=console.options.update(width=10_000)).maximum)
    console.print(table)


@data.command("fetch")
def fetch_datasets(
    names: Annotated[list[str] | None, typer.Argument(help="The data sets.", show_default=False)] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every data set.")] = False,
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", help="Where to put the files.", show_default="the user's cache")
    ] = None,
) -> None:
    """Download data sets from where they were published, and check them."""
    from gossamer_lab.data import SOURCES, fetch, source

    if bool(names) == everything:
        raise GossamerError(f"Name the data sets to fetch, or give `--all`. There is: {', '.join(SOURCES)}.")
    # All of them before the first download, so that no name is found to be wrong after an hour.
    wanted = [source(name) for name in names or SOURCES]
    for each in wanted:
        with download_bars() as progress:
            new = fetch(each.name, data_dir, progress)
        typer.echo(f"{each.name}: {'fetched to' if new else 'already in'} {_place(each, data_dir)}")


@data.command("verify")
def verify_datasets(
    names: Annotated[
        list[str] | None, typer.Argument(help="The data sets; all if none is named.", show_default=False)
    ] = None,
    data_dir: _DataDir = None,
) -> None:
    """Compare the checksum of every file; the exit code is 2 if one is wrong, or missing from what was asked for.

    A data set that was not named may be missing altogether, but not in part.
    """
    from gossamer_lab.data import SOURCES, inspect, roots, source

    failed = False
    for wanted in [source(name) for name in names or SOURCES]:
        states = inspect(wanted, roots(data_dir))
        for state in states:
            typer.echo(f"{wanted.name}: {state.name}: {state.state}{f' ({state.path})' if state.path else ''}")
            if state.problem:
                typer.echo(state.problem, err=True)
        kinds = {state.state for state in states}
        failed |= "wrong" in kinds or ("missing" in kinds and (bool(names) or "ok" in kinds))
    raise typer.Exit(2 if failed else 0)


def _place(source: Source, data_dir: Path | None) -> str | None:
    """The folder of a data set's files; None if one of them is missing."""
    from gossamer_lab.data import find, roots

    if not source.parts:
        return "scikit-learn"
    found = find(source, roots(data_dir))
    if len(found) < len(source.parts):
        return None
    return ", ".join(dict.fromkeys(str(path.parent) for path in found.values()))


@contextmanager
def download_bars() -> Iterator[Progress | None]:
    """A bar on stderr for each file of a download; none where there is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=console) as bars:
        tasks = {}

        def advance(file: str, done: int, total: int) -> None:
            if file not in tasks:
                tasks[file] = bars.add_task(file)
            bars.update(tasks[file], completed=done, total=total or None)

        yield advance
