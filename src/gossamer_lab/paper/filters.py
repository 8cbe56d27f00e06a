"""The filters of the first convolution on MNIST: what each regularizer leaves of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray
from torch import Tensor, nn

from gossamer.errors import GossamerError
from gossamer.files import write_atomically
from gossamer.store import load
from gossamer_lab.networks import build
from gossamer_lab.paper.compared import COMPARED
from gossamer_lab.paper.outcomes import Job
from gossamer_lab.paper.published import FILTER_SPARSITY
from gossamer_lab.paper.style import add_caption, new_figure, save
from gossamer_lab.training import TrainingConfig

__all__ = ["collect_filters", "filters_figure", "has_filters"]

_NETWORK = "mnist"
_COLUMNS = 5

# From dark blue to light yellow: in grey, from dark to light. White is left for zeros.
_COLOURS = "cividis"


def has_filters(jobs: Sequence[Job], path_json: Path) -> bool:
    """Whether the file holds the filters of these trainings."""
    if not path_json.exists():
        return False
    methods = json.loads(path_json.read_text(encoding="utf-8"))["methods"]
    held = {key: TrainingConfig(**method["config"]) for key, method in methods.items()}
    return held == {job.key: job.config for job in jobs}


def collect_filters(weights: Mapping[Job, Path], path_json: Path) -> None:
    """Write the first filters of trained networks, and how many of their weights are exactly zero, to one file.

    Units may have left a network while it was trained. Their filters count as zeros, and as nobody knows their
    places any more, they are the last.

    Args:
        weights: For each training, the `weights.safetensors` of its run.
        path_json: The file that is written.
    """
    full = _first_filters(build(_NETWORK))
    methods = {}
    for job, path in weights.items():
        filters = _first_filters(load(path, build(_NETWORK)))
        methods[job.key] = {"config": asdict(job.config), **_describe(filters, full)}
    content = {"network": _NETWORK, "filters": full.shape[0], "shape": list(full.shape[2:]), "methods": methods}
    path_json.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path_json, (json.dumps(content) + "\n").encode())


def filters_figure(path_json: Path, path_png: Path) -> Path:
    """Draw the filters of each method from the file, all on one scale, with zeros and removed filters marked."""
    content: dict[str, Any] = json.loads(path_json.read_text(encoding="utf-8"))
    methods: dict[str, Any] = content["methods"]
    if not methods:
        raise GossamerError(f"{path_json} holds no filters. Collect those of at least one network.")
    largest = max((abs(x) for method in methods.values() for x in np.ravel(method["filters"])), default=0.0) or 1.0
    rows = -(-len(methods) // 2)
    with new_figure(9.6, 3.55 * rows + 1.1) as figure:
        panels = figure.subplots(rows, 2, squeeze=False)
        for axes in panels.flat[len(methods) :]:
            axes.set_axis_off()
        for axes, (key, method) in zip(panels.flat, methods.items(), strict=False):
            image = _draw_panel(axes, content, method["filters"], largest)
            axes.set_title(_title(key, method["sparsity"]))
        figure.colorbar(image, ax=panels, label="weight", aspect=18 * rows)
        figure.suptitle("Filters of the first convolution", fontsize=12.5, x=0.012, ha="left")
        figure.legend(
            handles=[
                Patch(facecolor="white", edgecolor="black", hatch="////", linewidth=0.6, label="weight exactly zero"),
                Line2D([], [], color="black", marker="x", markersize=9, linestyle="", label="filter removed"),
            ],
            loc="outside upper right",
            ncols=2,
            frameon=False,
        )
        height, width = content["shape"]
        add_caption(
            figure,
            f"{content['filters']} filters of {height}×{width} weights for each regularizer, one network each, on one "
            "scale. Filters that were removed come last and count among the zeros.",
        )
        return save(figure, path_png)


def _first_filters(model: nn.Module) -> Tensor:
    convolution = next(module for module in model.modules() if isinstance(module, nn.Conv2d))
    return convolution.weight.detach()


def _describe(filters: Tensor, full: Tensor) -> dict[str, Any]:
    left = [row for row in filters[:, 0] if bool((row != 0).any())]
    return {
        "sparsity": 1 - int((filters != 0).sum()) / full.numel(),
        # Six digits never turn a weight that is not zero into one that is.
        "filters": [[[float(f"{x:.6g}") for x in line] for line in row.tolist()] for row in left],
    }


def _title(key: str, sparsity: float) -> str:
    label = COMPARED[key].label if key in COMPARED else key
    published = f" (paper: {100 * FILTER_SPARSITY[key]:.2f} %)" if key in FILTER_SPARSITY else ""
    return f"{label}: {100 * sparsity:.2f} % zero{published}"


def _draw_panel(axes: Axes, content: dict[str, Any], filters: list[Any], largest: float) -> AxesImage:
    height, width = content["shape"]
    rows = -(-content["filters"] // _COLUMNS)
    # One pixel between filters; what is not a number is left white.
    shape = (rows * (height + 1) - 1, _COLUMNS * (width + 1) - 1)
    picture: NDArray[np.float64] = np.full(shape, np.nan)
    zeros: list[tuple[int, int]] = []
    for number in range(content["filters"]):
        top, left = (number // _COLUMNS) * (height + 1), (number % _COLUMNS) * (width + 1)
        axes.add_collection(LineCollection(_frame(top, left, height, width), colors="black", linewidths=0.6))
        if number >= len(filters):
            axes.add_collection(LineCollection(_cross(top, left, height, width), colors="black", linewidths=1.0))
            continue
        values = np.array(filters[number])
        picture[top : top + height, left : left + width] = np.where(values == 0, np.nan, values)
        zeros += [(top + int(y), left + int(x)) for y, x in np.argwhere(values == 0)]
    axes.add_collection(LineCollection(list(_strokes(zeros)), colors="black", linewidths=0.6))
    image = axes.imshow(picture, cmap=_COLOURS, vmin=-largest, vmax=largest, interpolation="nearest")
    axes.set(xlim=(-0.8, shape[1] - 0.2), ylim=(shape[0] - 0.2, -0.8))
    axes.set_axis_off()
    return image


def _frame(top: int, left: int, height: int, width: int) -> list[list[tuple[float, float]]]:
    y, x = top - 0.5, left - 0.5
    return [[(x, y), (x + width, y), (x + width, y + height), (x, y + height), (x, y)]]


def _cross(top: int, left: int, height: int, width: int) -> list[list[tuple[float, float]]]:
    y, x = top - 0.5, left - 0.5
    return [[(x, y), (x + width, y + height)], [(x, y + height), (x + width, y)]]


def _strokes(pixels: list[tuple[int, int]]) -> Iterator[list[tuple[float, float]]]:
    """Yield two strokes for each pixel, so that together they hatch it. Hatches of patches are too coarse for it."""
    for y, x in pixels:
        yield [(x - 0.5, y + 0.0), (x + 0.0, y - 0.5)]
        yield [(x + 0.0, y + 0.5), (x + 0.5, y + 0.0)]
