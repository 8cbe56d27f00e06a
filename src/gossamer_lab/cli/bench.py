"""The command `gossamer bench`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from gossamer_lab.bench import BENCHMARKS
from gossamer_lab.cli.app import app
from gossamer_lab.cli.options import Json, Quiet

__all__ = ["bench"]


@app.command(epilog="Example: gossamer bench native --output results --threads 1")
def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(help=f"Benchmarks: {', '.join(BENCHMARKS)}. All by default.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            help="Folder of result files to write, one per benchmark; benchmarks/results in the repository.",
            show_default="none",
        ),
    ] = None,
    page: Annotated[
        list[Path] | None,
        typer.Option(help="Documentation page to update from the result files in --output.", show_default=False),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="Number of threads.", min=1, show_default="PyTorch's default")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Benchmark the library against a copy of the weights, its own variants and other libraries."""
    from dataclasses import asdict

    import torch
    from rich.console import Console

    from gossamer.errors import GossamerError
    from gossamer_lab.bench.page import page_section
    from gossamer_lab.bench.run import run
    from gossamer_lab.reporting.page import fill_page
    from gossamer_lab.reporting.tables import print_tables

    if page and output is None:
        raise GossamerError(
            "`--page` is filled from the result files in `--output`, which was not given. "
            "Add `--output FOLDER`; in the repository it is benchmarks/results."
        )
    if threads is not None:
        torch.set_num_threads(threads)
    console = Console(highlight=False)
    results = []
    errors = Console(stderr=True, highlight=False, soft_wrap=True, quiet=quiet)
    for result in run(names or (), output, lambda line: errors.print(line, markup=False)):
        results.append(result)
        if not (as_json or quiet):
            print_tables(console, [result.table()])
    if output is not None:
        for path in page or ():
            fill_page(path, page_section(output))
    if as_json:
        typer.echo(json.dumps({"results": [asdict(result) for result in results]}))
