"""`gossamer.report`: what training did to a network, as one HTML page."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import nn

from gossamer.errors import GossamerError
from gossamer.example import Example
from gossamer.visualization.collect import collect
from gossamer.visualization.data import Command, Page, Run
from gossamer.visualization.history import fraction, read_history
from gossamer.visualization.page import check_can_write, write_page

__all__ = ["report"]


def report(
    model: nn.Module,
    example: Example,
    path: str | os.PathLike[str] = "report.html",
    *,
    title: str | None = None,
    accuracy: float | None = None,
    history: Sequence[Mapping[str, float]] = (),
    runs: Sequence[Run] = (),
    dense: nn.Module | None = None,
    native: nn.Module | None = None,
    configuration: Mapping[str, object] | None = None,
    commands: Mapping[str, str] | None = None,
    rounds: int = 50,
) -> Path:
    """Write one self-contained HTML page on a trained network: counts, charts, patterns, the plan, bytes, latency.

    The page needs no network and no other file. It is made in evaluation mode, and the model stays as it is. Zeros
    are counted as `measure` counts them, and what leaves is what `shrink(model, example, form="module")` removes.

        history = []
        for epoch in range(20):
            train_one_epoch(model, optimizer)
            kept = gossamer.measure(model, x)
            history.append({"accuracy": evaluate(model), "params_kept": kept.params_kept})
        gossamer.report(model, x, "report.html", history=history)

    Args:
        model: The trained network.
        example: What it is called with: a tensor, a tuple of arguments, or a dictionary of keyword arguments. MACs
            and latency are those of this input.
        path: Where to write; what is there is replaced.
        title: Heading of the page; the name of the class if None.
        accuracy: Between 0 and 1; that of the last entry of `history` if None.
        history: One dictionary for each epoch with any of `accuracy`, `params_kept`, `flops_kept` (between 0 and 1),
            `loss`, `epoch` (counted from 1 if absent) and `held` (true where the penalty was off).
        runs: Other trainings, to compare: points of the trade-off, and curves where they have a history.
        dense: The network before units were removed from it; None if `model` still has all of its units.
        native: The network in a form that executes only the non-zeros (`gossamer.native`), as one more row of the
            comparison.
        configuration: Settings to list.
        commands: Command lines to list, by what they do.
        rounds: Forward passes of each form that are timed; 0 for no latency, and then the same model gives the same
            page, byte for byte.

    Returns:
        The path of the page.

    Raises:
        GossamerError: If Plotly is not installed (`pip install 'gossamer[report]'`), or an argument does not fit.
    """
    check_can_write(path)
    if rounds < 0:
        raise GossamerError(f"`rounds` must be 0 or more; received {rounds}.")
    epochs = read_history(history)
    recorded = next((epoch.accuracy for epoch in reversed(epochs) if epoch.accuracy is not None), None)
    reached = fraction("`accuracy`", accuracy) if accuracy is not None else recorded
    network = collect(model, example, dense=dense, native=native, rounds=rounds)
    kept = network.deployed
    main = Run("this run", reached, kept.params_kept, kept.flops_kept, epochs)
    page = Page(
        title=title or network.name,
        network=network,
        runs=(main, *runs),
        configuration=tuple((str(name), str(value)) for name, value in (configuration or {}).items()),
        commands=tuple(Command(purpose, line) for purpose, line in (commands or {}).items()),
    )
    return write_page(page, path)
