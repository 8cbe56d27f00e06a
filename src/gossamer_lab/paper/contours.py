"""Contour plots of the penalties in two dimensions, from the values of `gossamer.penalties`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.contour import QuadContourSet
from matplotlib.lines import Line2D

from gossamer.files import write_atomically
from gossamer.penalties import L0, L1, MCP, SCAD, CappedL1, L1MinusL2, Log, Lp, Penalty, TransformedL1
from gossamer_lab.paper.experiments import Experiment, Request, missing_results
from gossamer_lab.paper.runner import OUTCOMES
from gossamer_lab.reporting.style import add_caption, new_figure, save

__all__ = ["EXPERIMENT", "contours_figure", "shapes_figure", "write_contours"]

_FILE = "contours/contours.json"

# The parameters of the paper; its lambda is our `knee`, and its a of SCAD our `gamma`.
_NINE: dict[str, Penalty] = {
    "l0": L0(),
    "l1": L1(),
    "SCAD, λ = 0.28, a = 3.7": SCAD(knee=0.28, gamma=3.7),
    "MCP, λ = 0.4, γ = 2": MCP(knee=0.4, gamma=2),
    "capped l1, a = 0.3": CappedL1(a=0.3),
    "log, γ = 1000": Log(gamma=1e3),
    "lp, p = 1/2": Lp(p=0.5),
    "l1 − l2": L1MinusL2(),
    "Tl1, a = 1": TransformedL1(a=1),
}
_THREE: dict[str, Penalty] = {f"Tl1, a = {a:g}": TransformedL1(a=a) for a in (1e-2, 1.0, 1e2)}

# Beyond the unit square, so that the flat parts of SCAD (from 1.04) and MCP (from 0.8) are visible.
_REACH = 1.2
_POINTS = 37

# Fractions of the value at (1, 1). A separable penalty has half of it at (1, 0) and (0, 1): the unit ball.
_LEVELS = tuple(tenth / 10 for tenth in range(13))
_UNIT_BALL = 0.5

# The darkest shade is a middle grey, on which the lines are still visible.
_SHADES = Normalize(0, 2 * _LEVELS[-1])
_THICK = "#d55e00"

_NOTE = " l1 − l2 is not separable, and is zero on the axes. lp is drawn without the outer power 1/p."


def write_contours(path: Path) -> None:
    """Evaluate the penalties on a grid of the quadrant x, y >= 0; they are even."""
    # Quadratically spaced: l0 and similar penalties change within a thousandth of the axes.
    points = [round(_REACH * (number / (_POINTS - 1)) ** 2, 6) for number in range(_POINTS)]
    content = {
        "points": points,
        "penalties": [
            {
                "label": label,
                "at_one_one": _value(penalty, 1.0, 1.0),
                "values": [[_value(penalty, x, y) for x in points] for y in points],
            }
            for label, penalty in (_NINE | _THREE).items()
        ],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (json.dumps(content, separators=(",", ":")) + "\n").encode())


def _read(request: Request) -> dict[str, Any]:
    file = request.workspace.results / _FILE
    if not file.exists():
        raise missing_results([file])
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return content


def contours_figure(content: dict[str, Any], path: Path) -> Path:
    """Draw the nine penalties from the content of a file of `write_contours`."""
    return _draw(content, tuple(_NINE), 3, "Nine penalties in two dimensions", _NOTE, path)


def shapes_figure(content: dict[str, Any], path: Path) -> Path:
    """Draw transformed l1 for three values of a from the content of a file of `write_contours`."""
    return _draw(content, tuple(_THREE), 1, "Transformed l1, from l0 (small a) to l1 (large a)", "", path)


def _value(penalty: Penalty, x: float, y: float) -> float:
    # Five digits are finer than the lines of the figure, and keep the file small.
    return float(f"{penalty.value(torch.tensor([x, y], dtype=torch.float64)).item():.5g}")


def _draw(content: dict[str, Any], labels: Sequence[str], rows: int, title: str, note: str, path: Path) -> Path:
    penalties = {penalty["label"]: penalty for penalty in content["penalties"]}
    with new_figure(9.6, 2.9 * rows + 1.3) as figure:
        panels = figure.subplots(rows, 3, sharex=True, sharey=True, squeeze=False)
        for letter, label, axes in zip("abcdefghi", labels, panels.flat, strict=False):
            filled = _draw_panel(axes, content["points"], penalties[label])
            axes.set_title(f"({letter}) {label}")
            axes.label_outer()
        figure.colorbar(filled, ax=panels, label="value / value at (1, 1)", ticks=_LEVELS[::2], aspect=15 * rows)
        figure.suptitle(title, fontsize=12.5, x=0.012, ha="left")
        figure.legend(
            handles=[
                Line2D([], [], color=_THICK, linewidth=2.2, label="half of the value at (1, 1)"),
                Line2D([], [], color="black", linewidth=0.6, label="other multiples of a tenth"),
            ],
            loc="outside upper right",
            ncols=2,
            frameon=False,
        )
        add_caption(
            figure,
            "Level sets of the penalties. For a separable penalty the thick line is the boundary of its unit ball, "
            "through (1, 0) and (0, 1): a diamond for l1, the axes for l0." + note,
        )
        return save(figure, path)


def _draw_panel(axes: Axes, points: Sequence[float], penalty: dict[str, Any]) -> QuadContourSet:
    half = np.array(points)
    grid = np.concatenate([-half[:0:-1], half])
    quadrant = np.array(penalty["values"]) / penalty["at_one_one"]
    right = np.concatenate([quadrant[:0:-1], quadrant])
    values = np.concatenate([right[:, :0:-1], right], axis=1)
    filled = axes.contourf(grid, grid, values, _LEVELS, cmap="Greys", norm=_SHADES)
    others = [level for level in _LEVELS if level not in (0, _UNIT_BALL)]
    axes.contour(grid, grid, values, others, colors="black", linewidths=0.6)
    axes.contour(grid, grid, values, [_UNIT_BALL], colors=_THICK, linewidths=2.2)
    axes.set(aspect="equal", xticks=(-1, 0, 1), yticks=(-1, 0, 1), xlabel="first weight", ylabel="second weight")
    return filled


EXPERIMENT = Experiment(
    folder="contours",
    datasets=(),
    trainings=lambda request: [],
    kind=lambda request: OUTCOMES,
    read=_read,
    outputs={"contours.png": contours_figure, "contours_of_a.png": shapes_figure},
    compute=lambda request: write_contours(request.workspace.results / _FILE),
)
