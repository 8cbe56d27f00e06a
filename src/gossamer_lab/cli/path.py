"""The command `gossamer path`: the trade-off between accuracy and size."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import torch
from torch import nn

from gossamer.errors import GossamerError
from gossamer.files import write_atomically
from gossamer.store import save
from gossamer.targets import Kind
from gossamer_lab.cli.data import download_bars
from gossamer_lab.cli.display import Display
from gossamer_lab.data import obtain
from gossamer_lab.reporting.path_figure import path_figure
from gossamer_lab.reporting.tables import Table, percent
from gossamer_lab.training import SETTINGS, TrainingConfig, defaults, load_dataset, regularizer_spec
from gossamer_lab.training.path import PathSettings, TradeoffPoint, from_scratch, warm_started

__all__ = ["run_path"]


def run_path(
    dataset: str,
    sizes: list[float],
    *,
    kind: str,
    regularizer: str,
    epochs: int | None,
    epochs_each: int | None,
    seed: int,
    output: Path,
    compare: bool,
    as_json: bool,
) -> None:
    """Train the path, and with `compare` every point from scratch; write points, networks and figure to `output`."""
    torch.set_num_threads(1)
    settings = _settings(dataset, sizes, kind, regularizer, epochs, epochs_each, seed)
    if output.exists() and not output.is_dir():
        raise GossamerError(f"{output} is a file. `--output` must be a folder.")
    with download_bars() as on_download:
        obtain(dataset, None, on_download)
    images = load_dataset(settings.config)
    output.mkdir(parents=True, exist_ok=True)
    display = Display(quiet=as_json)
    curves = {"path": _collect(warm_started(settings, images), display, output)}
    if compare:
        curves["from scratch"] = _collect(from_scratch(settings, images), display, None)
    points = {name: [asdict(point) for point in found] for name, found in curves.items()}
    result = {"dataset": dataset, "regularizer": regularizer, "kind": kind, "seed": seed, "points": points}
    write_atomically(output / "path.json", (json.dumps(result, indent=2) + "\n").encode())
    figure = path_figure(f"{dataset}: accuracy against size, {regularizer}", curves, output / "path.png")
    for name, found in curves.items():
        display.table(_table(name, found))
    display.text(f"points: {output / 'path.json'}\nfigure: {figure}")
    if as_json:
        print(json.dumps(result))


def _settings(
    dataset: str,
    sizes: list[float],
    kind: str,
    regularizer: str,
    epochs: int | None,
    epochs_each: int | None,
    seed: int,
) -> PathSettings:
    if dataset not in SETTINGS:
        raise GossamerError(f"Unknown data set {dataset!r}. Available: {', '.join(SETTINGS)}.")
    if kind not in get_args(Kind) or kind == "bytes":
        raise GossamerError(f"`--kind` must be params, flops, dense_params or dense_flops; received {kind!r}.")
    regularizer_spec(regularizer)
    chosen: dict[str, Any] = {**defaults(dataset, regularizer, kind), **({} if epochs is None else {"epochs": epochs})}
    chosen.pop("compact_every", None)
    first = {f"target_{kind}": sizes[0]} if sizes else {}
    config = TrainingConfig(dataset=dataset, regularizer=regularizer, seed=seed, **{**chosen, **first})
    each = max(2, round(config.epochs / 10)) if epochs_each is None else epochs_each
    settings = PathSettings(config, kind, sizes, each)
    settings.targets()  # refuses sizes that are no targets, before anything is trained
    return settings


def _collect(
    points: Iterator[tuple[TradeoffPoint, nn.Module]], display: Display, folder: Path | None
) -> list[TradeoffPoint]:
    found = []
    for point, small in points:
        found.append(point)
        display.message(f"{percent(point.size)} %: accuracy {percent(point.accuracy)} %, {point.seconds:.0f} s")
        if folder is not None:
            save(small, folder / f"point-{len(found) - 1}.safetensors", sparse=True)
    return found


def _table(name: str, points: list[TradeoffPoint]) -> Table:
    rows = [
        [
            f"{percent(point.size)} %",
            *(f"{percent(value)} %" for value in (point.accuracy, point.params_kept, point.flops_kept)),
            f"{percent(point.dense_flops)} %",
            str(point.epochs),
            f"{point.seconds:.0f}",
        ]
        for point in points
    ]
    columns = ("target", "accuracy", "weights", "MACs", "MACs after shrink", "epochs", "seconds")
    return Table(columns, rows, f"{name}: {sum(point.epochs for point in points)} epochs")
