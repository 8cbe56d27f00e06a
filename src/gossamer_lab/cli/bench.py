"""``gossamer bench``: the benchmarks' options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from gossamer_lab.cli.app import app

__all__ = ["bench"]


@app.command()
def bench(
    questions: Annotated[
        list[str] | None,
        typer.Argument(
            help="a: the proximal step; b: a training step; c: inference; d: shrink; e: a whole training; f: growth; "
            "g: our training loop; h: torch.compile instead of our kernel. All if none is named."
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option(help="Folder of the result files, one for each question.", show_default=True)
    ] = Path("benchmarks/results"),
    page: Annotated[
        Path | None, typer.Option(help="Write the tables of this page of documentation anew, from all result files.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="Threads to compute with.", min=1, show_default="PyTorch's own choice")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, and nothing else, on stdout.")
    ] = False,
) -> None:
    """Measure this library against a copy of the weights, against itself without its parts, and against others."""
    from dataclasses import asdict

    import torch

    from gossamer_lab.bench import fill_page, run, text

    if threads is not None:
        torch.set_num_threads(threads)
    results = []
    for result in run(questions or (), output):
        results.append(result)
        if not as_json:
            typer.echo(f"{text(result)}\n{result.machine}\n")
    if page is not None:
        fill_page(page, output)
    if as_json:
        typer.echo(json.dumps({"results": [asdict(result) for result in results]}))
