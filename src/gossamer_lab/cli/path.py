"""The command `gossamer path`: the trade-off between accuracy and size."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import torch
from torch import nn

from gossamer.errors import GossamerError
from gossamer.store import save
from gossamer.targets import Kind
from gossamer_lab.cli.data import download_bars
from gossamer_lab.cli.display import Display
from gossamer_lab.cli.options import command_line
from gossamer_lab.cli.report import show_report
from gossamer_lab.data import obtain
from gossamer_lab.reporting.path_figure import path_figure
from gossamer_lab.reporting.path_report import PATH_FILE
from gossamer_lab.reporting.tables import Table, percent
from gossamer_lab.training import SETTINGS, TrainingConfig, defaults, load_dataset, regularizer_spec
from gossamer_lab.training.metrics import versions
from gossamer_lab.training.path import PathSettings, TradeoffPoint, from_scratch, warm_started
from gossamer_lab.training.records import write_record

__all__ = ["PathOptions", "run_path"]


@dataclass(frozen=True)
class PathOptions:
    """The options of the command."""

    dataset: str
    sizes: tuple[float, ...]
    kind: str
    regularizer: str
    epochs: int | None
    epochs_each: int | None
    seed: int
    output: Path
    compare: bool
    quiet: bool
    as_json: bool


def run_path(options: PathOptions) -> int:
    """Train the path, and with `compare` every point from scratch; write points, networks, figure and report."""
    torch.set_num_threads(1)
    settings = _settings(options)
    if options.output.exists() and not options.output.is_dir():
        raise GossamerError(f"{options.output} is a file. `--output` must be a folder.")
    with download_bars(silent=options.quiet) as on_download:
        obtain(options.dataset, None, on_download)
    images = load_dataset(settings.config)
    settings = settings.checked(images)
    options.output.mkdir(parents=True, exist_ok=True)
    display = Display(quiet=options.as_json, silent=options.quiet)
    try:
        curves = {"path": _collect(warm_started(settings, images), display, options.output)}
        if options.compare:
            curves["from scratch"] = _collect(from_scratch(settings, images), display, None)
    except KeyboardInterrupt:
        display.message("interrupted; a path is trained in one go: start it again")
        return 128 + signal.SIGINT
    result = _record(options, settings, curves)
    write_record(options.output / PATH_FILE, result)
    _show(options, curves, display)
    if options.as_json:
        print(json.dumps(result))
    return 0


def _record(options: PathOptions, settings: PathSettings, curves: dict[str, list[TradeoffPoint]]) -> dict[str, Any]:
    """The content of `path.json`."""
    shown = {name: value for name, value in asdict(settings.config).items() if not name.startswith("target_")}
    given = {
        **asdict(options), "sizes": ",".join(f"{size:.6g}" for size in options.sizes),
        "dataset": None, "quiet": None, "as_json": None,
    }  # fmt: skip
    return {
        "dataset": options.dataset,
        "regularizer": options.regularizer,
        "kind": options.kind,
        "seed": options.seed,
        "points": {name: [asdict(point) for point in found] for name, found in curves.items()},
        "command": command_line(["gossamer", "path", options.dataset], given),
        "configuration": {
            **shown,
            "epochs of the dense network": settings.dense_epochs,
            "epochs each": settings.epochs_each,
        },
        "versions": versions(),
    }


def _show(options: PathOptions, curves: dict[str, list[TradeoffPoint]], display: Display) -> None:
    title = f"{options.dataset}: accuracy against size, {options.regularizer}"
    figure = path_figure(title, curves, options.output / "path.png")
    for name, found in curves.items():
        display.table(_table(name, found))
    display.text(f"points:           {options.output / PATH_FILE}")
    display.text(f"figure:           {figure}")
    show_report(options.output, display)


def _settings(options: PathOptions) -> PathSettings:
    if options.dataset not in SETTINGS:
        raise GossamerError(f"Unknown data set {options.dataset!r}. Available: {', '.join(SETTINGS)}.")
    if options.kind not in get_args(Kind) or options.kind == "bytes":
        raise GossamerError(f"`--kind` must be params, flops, dense_params or dense_flops; received {options.kind!r}.")
    regularizer_spec(options.regularizer)
    chosen: dict[str, Any] = defaults(options.dataset, options.regularizer, options.kind)
    if options.epochs is not None:
        chosen["epochs"] = options.epochs
    chosen.pop("compact_every", None)
    if options.sizes:
        chosen[f"target_{options.kind}"] = options.sizes[0]
    config = TrainingConfig(
        dataset=options.dataset, **{**chosen, "regularizer": options.regularizer, "seed": options.seed}
    )
    settings = PathSettings(config, options.kind, options.sizes, options.epochs_each)
    settings.targets()  # refuses sizes that are no targets, before anything is downloaded
    return settings


def _collect(
    points: Iterator[tuple[TradeoffPoint, nn.Module]], display: Display, folder: Path | None
) -> list[TradeoffPoint]:
    found = []
    for point, small in points:
        found.append(point)
        display.progress(f"{percent(point.size)} %: accuracy {percent(point.accuracy)} %, {point.seconds:.0f} s")
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
