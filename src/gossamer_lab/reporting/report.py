"""The HTML report of a finished run, from the files of its directory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor, nn

from gossamer.errors import GossamerError
from gossamer.inference import native
from gossamer.store import load
from gossamer.visualization import Command, Epoch, Network, Page, Run, check_can_write, collect, write_page
from gossamer_lab.networks import build, example_input
from gossamer_lab.training import EpochMetrics, RunDirectory, RunResult, TrainingConfig

__all__ = ["compared_runs", "write_report"]

# Inputs of a forward pass that is timed.
_BATCHES = {"1 input": 1, "64 inputs": 64}


def write_report(
    run: RunDirectory,
    path: str | os.PathLike[str],
    *,
    compared: Sequence[RunDirectory] = (),
    commands: Sequence[Command] = (),
) -> Path:
    """Write the page of a finished run.

    Args:
        run: The run that the page is about.
        path: Where to write; what is there is replaced.
        compared: Other finished runs, drawn beside it.
        commands: Command lines to list.
    """
    _check_finished(run)
    check_can_write(path)
    config, result = run.read_config(), run.read_result()
    directories = (run, *compared)
    labels = _labels([one.read_result() for one in directories])
    runs = [_read_run(one, label) for one, label in zip(directories, labels, strict=True)]
    settings = {name: value for name, value in asdict(config).items() if value is not None}
    versions = {f"version of {name}": value for name, value in result.versions.items()}
    page = Page(
        title=f"{config.dataset}: {_facts(result)[-1]}",
        network=_network(run, config),
        runs=tuple(runs),
        score="validation accuracy" if config.validation_fraction > 0 else "test accuracy",
        configuration=tuple((name, str(value)) for name, value in {**settings, **versions}.items()),
        commands=tuple(commands),
    )
    return write_page(page, path)


def compared_runs(run: RunDirectory) -> list[RunDirectory]:
    """The finished runs in folders of a run, in order of their names: those that it was trained beside."""
    folders = sorted(path for path in run.path.iterdir() if path.is_dir()) if run.path.is_dir() else []
    found = [RunDirectory(folder) for folder in folders]
    return [one for one in found if one.config.exists() and one.result.exists()]


def _check_finished(run: RunDirectory) -> None:
    if not run.config.exists():
        raise GossamerError(
            f"{run.path} is not a run: there is no {run.config.name}. Give a folder that `gossamer train`, `gossamer "
            "sweep` or `gossamer path` has written."
        )
    missing = [file.name for file in (run.result, run.weights, run.small) if not file.exists()]
    if missing:
        raise GossamerError(
            f"{run.path} holds no finished run: there is no {', '.join(missing)}. "
            "Finish it with `gossamer train --resume`."
        )


def _network(run: RunDirectory, config: TrainingConfig) -> Network:
    name = config.network or config.dataset
    dense, example = build(name, torch.Generator().manual_seed(config.seed)), example_input(name)
    model = load(run.weights, build(name, torch.Generator().manual_seed(config.seed)))
    # Units may have left the network while it trained: then its file is not that of the dense network.
    form = "dense" if _parameters(model) == _parameters(dense) else "trained"
    inputs = {label: example[:1].expand(size, *example.shape[1:]).contiguous() for label, size in _BATCHES.items()}
    files = {form: run.weights, "shrunk": run.small}
    return collect(model, example, dense=dense, native=_native(model, example), files=files, inputs=inputs)


def _native(model: nn.Module, example: Tensor) -> nn.Module | None:
    """The network compiled for this machine; None where that is not possible, as without a compiler."""
    try:
        return native(model, example, threads=1)
    except GossamerError:
        return None


def _parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _read_run(run: RunDirectory, label: str) -> Run:
    result = run.read_result()
    return Run(
        label=label,
        accuracy=result.accuracy,
        params_kept=result.params_kept,
        flops_kept=result.flops_kept,
        history=tuple(_epoch(metrics) for metrics in run.read_metrics()),
    )


def _labels(results: Sequence[RunResult]) -> list[str]:
    """The regularizer of each run, with the strength, and with the seed, where runs would be called the same."""
    columns = list(zip(*(_facts(result) for result in results), strict=True))
    return list(next((labels for labels in columns if len(set(labels)) == len(labels)), columns[-1]))


def _facts(result: RunResult) -> tuple[str, str, str]:
    name = "dense" if result.regularizer == "none" else result.regularizer
    strong = f"{name}, strength {result.strength:.3g}" if result.strength else name
    return name, strong, f"{strong}, seed {result.seed}"


def _epoch(metrics: EpochMetrics) -> Epoch:
    return Epoch(
        epoch=metrics.epoch,
        accuracy=metrics.test_accuracy,
        loss=metrics.loss,
        params_kept=metrics.params_kept,
        flops_kept=metrics.flops_kept,
        held=metrics.phase == "hold",
    )
