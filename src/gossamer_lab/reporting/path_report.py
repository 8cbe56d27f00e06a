"""The HTML report of `gossamer path`, from its `path.json`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gossamer.errors import GossamerError
from gossamer.visualization import Command, Page, Run, Series, Study, check_can_write, write_page
from gossamer_lab.training.path import TradeoffPoint
from gossamer_lab.training.records import read_record

__all__ = ["PATH_FILE", "write_path_report"]

PATH_FILE = "path.json"
_LARGEST = 2**22  # bytes


def write_path_report(folder: Path, output: Path | None = None) -> Path:
    """Write the page of the path in `folder`, by default as `report.html` into it."""
    target = output or folder / "report.html"
    check_can_write(target)
    file = folder / PATH_FILE
    try:
        page = _page(read_record(file, _LARGEST), folder, output)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise GossamerError(f"{file} is corrupt: {error!r}. Make it again with `gossamer path`.") from None
    return write_page(page, target)


def _page(content: dict[str, Any], folder: Path, output: Path | None) -> Page:
    curves = {name: [TradeoffPoint(**point) for point in points] for name, points in content["points"].items()}
    again = f"gossamer report {folder}" + ("" if output is None else f" --output {output}")
    commands = [Command("Make this page again", again)]
    if "command" in content:  # absent from files of earlier versions
        commands.insert(0, Command("Train it again", content["command"]))
    known = {name: content[name] for name in ("dataset", "regularizer", "kind", "seed")}
    settings = {**known, **content.get("configuration", {}), **_versions(content)}
    return Page(
        title=f"{content['dataset']}: path of {content['regularizer']}",
        study=Study(tuple(_series(name, points) for name, points in curves.items()), "target", _costs(curves)),
        score="test accuracy",
        configuration=tuple((name, str(value)) for name, value in settings.items() if value is not None),
        commands=tuple(commands),
    )


def _versions(content: dict[str, Any]) -> dict[str, str]:
    return {f"version of {name}": version for name, version in content.get("versions", {}).items()}


def _series(name: str, points: list[TradeoffPoint]) -> Series:
    """The points of the path follow from each other; those from scratch do not, but are read in the same order."""
    return Series(name, tuple(_run(point) for point in points), joined=True)


def _run(point: TradeoffPoint) -> Run:
    return Run(
        label="dense" if point.size == 1.0 else f"{100 * point.size:g}%",
        accuracy=point.accuracy,
        params_kept=point.params_kept,
        flops_kept=point.flops_kept,
        dense_flops=point.dense_flops,
        settings=(("trained for", f"{point.epochs} epochs"),),
    )


def _costs(curves: dict[str, list[TradeoffPoint]]) -> tuple[str, ...]:
    return tuple(
        f"{name.capitalize()}: {len(points)} networks in {sum(point.epochs for point in points)} epochs, "
        f"{sum(point.seconds for point in points):.0f} seconds."
        for name, points in curves.items()
    )
