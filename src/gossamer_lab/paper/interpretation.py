"""Which part of a regularizer removes neurons, and which connections: the last layers on DIGITS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from gossamer.errors import GossamerError
from gossamer_lab.paper.outcomes import Outcome, plus_minus
from gossamer_lab.paper.published import INTERPRETATION

__all__ = ["interpretation_markdown", "interpretation_table"]

_LABELS = {"group-lasso": "group sparsity", "transformed-l1": "Tl1", "integrated-tl1": "integrated Tl1"}
_HIDDEN, _OUTPUT = "hidden.weight", "output.weight"
_COLUMNS = (
    "regularizer",
    "setting",
    "neurons removed",
    "paper",
    "zero connections (%)",
    "paper",
    "hidden layer",
    "output layer",
    "accuracy (%)",
    "seeds",
)


def interpretation_markdown(outcomes: Sequence[Outcome]) -> str:
    """Write the table for a page: mean ± standard deviation over the seeds, beside the published figures.

    A neuron is removed when all its ingoing or all its outgoing weights are zero. Connections are those of both fully
    connected layers, then those of each.
    """
    head = [_cells(_COLUMNS), _cells(["---", *["---:"] * (len(_COLUMNS) - 1)])]
    return "\n".join([*head, *(_cells(row) for row in _rows(outcomes))]) + "\n"


def interpretation_table(outcomes: Sequence[Outcome]) -> Table:
    """Make the same table for a terminal of 80 columns: without settings and single layers."""
    title = "Last layers on DIGITS (published in brackets)"
    table = Table(box=SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    table.add_column("regularizer", no_wrap=True)
    for heading in ("neurons removed", "zero connections (%)", "accuracy (%)"):
        table.add_column(heading, justify="right", no_wrap=True)
    for label, _, removed, removed_there, zeros, zeros_there, _, _, accuracy, _ in _rows(outcomes):
        table.add_row(label, f"{removed} ({removed_there.split()[0]})", f"{zeros} ({zeros_there})", accuracy)
    return table


def _cells(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _rows(outcomes: Sequence[Outcome]) -> list[list[str]]:
    if unknown := sorted({outcome.job.key for outcome in outcomes} - set(_LABELS)):
        raise GossamerError(f"The table compares {', '.join(_LABELS)}; received outcomes of {', '.join(unknown)}.")
    groups = {key: [outcome for outcome in outcomes if outcome.job.key == key] for key in _LABELS}
    return [_row(key, group) for key, group in groups.items() if group]


def _row(key: str, outcomes: Sequence[Outcome]) -> list[str]:
    published, config = INTERPRETATION[key], outcomes[0].job.config
    setting = [("λ", config.strength), ("a", config.a), ("s", config.s)]
    layers = [{layer["name"]: layer for layer in outcome.result.measurement["layers"]} for outcome in outcomes]
    total = layers[0][_HIDDEN]["units"]
    removed = [total - outcome.result.small["units"][_HIDDEN] for outcome in outcomes]
    return [
        _LABELS[key],
        ", ".join(f"{name} {value:g}" for name, value in setting if value is not None),
        f"{plus_minus(removed, 1)} of {total}",
        f"{published.neurons_removed} of 128",
        plus_minus([_zeros(found[_HIDDEN], found[_OUTPUT]) for found in layers]),
        f"{100 * published.sparsity:.2f}",
        plus_minus([_zeros(found[_HIDDEN]) for found in layers]),
        plus_minus([_zeros(found[_OUTPUT]) for found in layers]),
        plus_minus([100 * outcome.result.accuracy for outcome in outcomes]),
        str(len(outcomes)),
    ]


def _zeros(*layers: dict[str, Any]) -> float:
    """Percent of the weights of these layers together that are zero."""
    left = sum(int(layer["nonzeros"]) for layer in layers)
    return 100 * (1 - left / sum(int(layer["weights"]) for layer in layers))
