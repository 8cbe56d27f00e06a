"""The filters of the first convolution on MNIST under each method."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
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
from gossamer_lab.paper.comparison import compared_trainings
from gossamer_lab.paper.experiments import Experiment, Request, missing_results
from gossamer_lab.paper.methods import DENSE, METHODS
from gossamer_lab.paper.outcomes import Job
from gossamer_lab.paper.plan import Training
from gossamer_lab.paper.published import FILTER_SPARSITY
from gossamer_lab.paper.runner import OUTCOMES, run_directory, silent, train_job
from gossamer_lab.paper.workspace import Workspace
from gossamer_lab.reporting.style import add_caption, new_figure, save
from gossamer_lab.sweeps import OnProgress, run_in_processes
from gossamer_lab.training import TrainingConfig

__all__ = ["EXPERIMENT", "FilterFiles", "collect_filters", "filters_figure"]

_NETWORK = "mnist"
_FILE = "filters/filters.json"
_COLUMNS = 5

# From dark blue to light yellow, monotone in lightness. White is used for zeros.
_COLOURS = "cividis"


def _trainings(request: Request) -> list[Training]:
    """The table's trainings on MNIST with the first seed, without the dense network."""
    first = replace(request, datasets=(_NETWORK,), seeds=request.seeds[:1])
    trainings = compared_trainings(first)
    return [replace(training, file=_FILE) for training in trainings if training.key != DENSE.key]


@dataclass(frozen=True)
class FilterFiles:
    """Files with the filters of some jobs, taken from the weights in their run directories."""

    def missing(self, jobs: Sequence[Job], file: Path) -> list[Job]:
        """Return the jobs that the file has no filters of."""
        if not file.exists():
            return list(jobs)
        stored = json.loads(file.read_text(encoding="utf-8"))["methods"]
        known = {Job(key, TrainingConfig.from_dict(method["config"])) for key, method in stored.items()}
        return [job for job in jobs if job not in known]

    def work(self, jobs: Sequence[Job], workspace: Workspace) -> int:
        """Return the number of epochs of the jobs without a finished run."""
        return OUTCOMES.work(jobs, workspace)

    def make(self, jobs: Sequence[Job], file: Path, workspace: Workspace, on_progress: OnProgress = silent) -> None:
        """Train the jobs without a finished run and write the filters of all jobs."""
        untrained = [job for job in jobs if not run_directory(job.config, workspace).result.exists()]
        if untrained:
            list(run_in_processes(partial(train_job, workspace), untrained, workspace.workers, on_progress))
        collect_filters({job: run_directory(job.config, workspace).weights for job in jobs}, file)


def collect_filters(weights: Mapping[Job, Path], file: Path) -> None:
    """Write the first filters of trained networks, and the fraction of exact zeros, to one file.

    Filters that were removed during training count as zeros. Their positions are unknown, so they come last.

    Args:
        weights: The `weights.safetensors` of each job.
        file: The file to write.
    """
    full = _first_filters(build(_NETWORK))
    methods = {}
    for job, path in weights.items():
        filters = _first_filters(load(path, build(_NETWORK)))
        methods[job.key] = {"config": asdict(job.config), **_describe(filters, full)}
    content = {"network": _NETWORK, "filters": full.shape[0], "shape": list(full.shape[2:]), "methods": methods}
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, (json.dumps(content) + "\n").encode())


def _read(request: Request) -> dict[str, Any]:
    file = request.workspace.results / _FILE
    if not file.exists():
        raise missing_results([file])
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return content


def filters_figure(content: dict[str, Any], path: Path) -> Path:
    """Draw the filters of each method on one scale, with zeros and removed filters marked.

    Args:
        content: The content of a file of `collect_filters`.
        path: The PNG file to write.
    """
    methods: dict[str, Any] = content["methods"]
    if not methods:
        raise GossamerError("There are no filters to draw. Collect those of at least one network.")
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
            f"{content['filters']} filters of {height}×{width} weights per method, one network each, on one scale. "
            "Removed filters come last and count as zeros.",
        )
        return save(figure, path)


def _first_filters(model: nn.Module) -> Tensor:
    convolution = next(module for module in model.modules() if isinstance(module, nn.Conv2d))
    return convolution.weight.detach()


def _describe(filters: Tensor, full: Tensor) -> dict[str, Any]:
    live = [row for row in filters[:, 0] if bool((row != 0).any())]
    return {
        "sparsity": 1 - int((filters != 0).sum()) / full.numel(),
        # Six significant digits never round a non-zero weight to zero.
        "filters": [[[float(f"{x:.6g}") for x in line] for line in row.tolist()] for row in live],
    }


def _title(key: str, sparsity: float) -> str:
    label = METHODS[key].label if key in METHODS else key
    published = f" (paper: {100 * FILTER_SPARSITY[key]:.2f} %)" if key in FILTER_SPARSITY else ""
    return f"{label}: {100 * sparsity:.2f} % zero{published}"


def _draw_panel(axes: Axes, content: dict[str, Any], filters: list[Any], largest: float) -> AxesImage:
    height, width = content["shape"]
    rows = -(-content["filters"] // _COLUMNS)
    # One pixel between filters; NaN is drawn white.
    shape = (rows * (height + 1) - 1, _COLUMNS * (width + 1) - 1)
    canvas: NDArray[np.float64] = np.full(shape, np.nan)
    zeros: list[tuple[int, int]] = []
    for number in range(content["filters"]):
        top, left = (number // _COLUMNS) * (height + 1), (number % _COLUMNS) * (width + 1)
        axes.add_collection(LineCollection(_frame(top, left, height, width), colors="black", linewidths=0.6))
        if number >= len(filters):
            axes.add_collection(LineCollection(_cross(top, left, height, width), colors="black", linewidths=1.0))
            continue
        values = np.array(filters[number])
        canvas[top : top + height, left : left + width] = np.where(values == 0, np.nan, values)
        zeros += [(top + int(y), left + int(x)) for y, x in np.argwhere(values == 0)]
    axes.add_collection(LineCollection(list(_strokes(zeros)), colors="black", linewidths=0.6))
    image = axes.imshow(canvas, cmap=_COLOURS, vmin=-largest, vmax=largest, interpolation="nearest")
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
    """Yield two strokes per pixel that hatch it; matplotlib's hatches are too coarse."""
    for y, x in pixels:
        yield [(x - 0.5, y + 0.0), (x + 0.0, y - 0.5)]
        yield [(x + 0.0, y + 0.5), (x + 0.5, y + 0.0)]


EXPERIMENT = Experiment(
    folder="filters",
    datasets=(_NETWORK,),
    trainings=_trainings,
    kind=lambda request: FilterFiles(),
    read=_read,
    outputs={"filters.png": filters_figure},
)
