"""The command `gossamer data`: listing, downloading and verifying data sets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gossamer_lab.cli.options import DataDir, Json, Quiet

if TYPE_CHECKING:
    from gossamer_lab.data import Source
    from gossamer_lab.data.fetching import OnDownload

__all__ = ["data", "download_bars"]

data = typer.Typer(help="List, download and verify the data sets.", no_args_is_help=True)


@data.command("list", epilog="Example: gossamer data list --json")
def list_datasets(data_dir: DataDir = None, as_json: Json = False) -> None:
    """List the data sets, their sizes and the location of their files."""
    from rich.console import Console

    from gossamer_lab.data import SOURCES
    from gossamer_lab.reporting.tables import Table, print_tables

    locations = {name: _location(source, data_dir) for name, source in SOURCES.items()}
    if as_json:
        rows = [
            {
                "name": source.name,
                "input_shape": source.input_shape,
                "train": source.train,
                "test": source.test,
                "classes": source.classes,
                "place": locations[source.name],
            }
            for source in SOURCES.values()
        ]
        typer.echo(json.dumps({"datasets": rows}))
        return
    lines = [
        [
            name,
            "x".join(map(str, source.input_shape)),
            f"{source.train:,}",
            f"{source.test:,}",
            str(source.classes),
            locations[name] or f"not found: gossamer data fetch {name}",
        ]
        for name, source in SOURCES.items()
    ]
    columns = ("data set", "input", "train", "test", "classes", "location")
    print_tables(Console(highlight=False), [Table(columns, lines, align="lrrrrl")])


@data.command("fetch", epilog="Example: gossamer data fetch mnist fashion-mnist")
def fetch_datasets(
    names: Annotated[list[str] | None, typer.Argument(help="Names of data sets.", show_default=False)] = None,
    everything: Annotated[bool, typer.Option("--all", help="All data sets.")] = False,
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", help="Data folder to download to.", show_default="the user's cache")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Download data sets from their public mirrors and verify them."""
    from gossamer_lab.data import SOURCES, fetch, source

    if bool(names) == everything:
        from gossamer.errors import GossamerError

        raise GossamerError(f"Name the data sets to fetch, or give `--all`. Available: {', '.join(SOURCES)}.")
    wanted = [source(name) for name in names or SOURCES]  # all names are checked before the first download
    fetched = []
    for each in wanted:
        with download_bars(silent=quiet) as on_download:
            new = fetch(each.name, data_dir, on_download)
        fetched.append({"name": each.name, "downloaded": new, "place": _location(each, data_dir)})
        if not (quiet or as_json):
            typer.echo(f"{each.name}: {'downloaded to' if new else 'already in'} {fetched[-1]['place']}")
    if as_json:
        typer.echo(json.dumps({"datasets": fetched}))


@data.command("verify", epilog="Example: gossamer data verify mnist")
def verify_datasets(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names of data sets; all by default.", show_default=False)
    ] = None,
    data_dir: DataDir = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Verify the checksum of every file; the exit code is 2 if one is wrong or missing.

    A data set that was not named may be missing as a whole, but not in part.
    """
    from gossamer_lab.data import SOURCES, inspect, search_path, source

    failed, found = False, []
    for wanted in [source(name) for name in names or SOURCES]:
        states = inspect(wanted, search_path(data_dir))
        for state in states:
            place = None if state.path is None else str(state.path)
            found.append({"dataset": wanted.name, "file": state.name, "state": state.state, "path": place})
            if not (quiet or as_json):
                typer.echo(f"{wanted.name}: {state.name}: {state.state}{f' ({place})' if place else ''}")
            if state.problem:
                typer.echo(state.problem, err=True)
        kinds = {state.state for state in states}
        failed |= "wrong" in kinds or ("missing" in kinds and (bool(names) or "ok" in kinds))
    if as_json:
        typer.echo(json.dumps({"ok": not failed, "files": found}))
    raise typer.Exit(2 if failed else 0)


def _location(source: Source, data_dir: Path | None) -> str | None:
    """Return the folder of a data set's files; None if one of them is missing."""
    from gossamer_lab.data import find, search_path

    if not source.parts:
        return "scikit-learn"
    found = find(source, search_path(data_dir))
    if len(found) < len(source.parts):
        return None
    return ", ".join(dict.fromkeys(str(path.parent) for path in found.values()))


@contextmanager
def download_bars(silent: bool = False) -> Iterator[OnDownload | None]:
    """Yield a function that shows a progress bar per file on stderr; None without a terminal, or if `silent`."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    console = Console(stderr=True)
    if silent or not console.is_terminal:
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
