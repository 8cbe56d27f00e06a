"""Removed neurons and zero connections in the last layers on DIGITS, by regularizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gossamer.errors import GossamerError
from gossamer_lab.paper.experiments import Experiment, Request, write_text
from gossamer_lab.paper.methods import GROUP, ITL, TL1
from gossamer_lab.paper.outcomes import Outcome
from gossamer_lab.paper.plan import Training
from gossamer_lab.paper.published import INTERPRETATION
from gossamer_lab.paper.recipes import OURS
from gossamer_lab.paper.runner import OUTCOMES
from gossamer_lab.paper.searches import searches
from gossamer_lab.reporting.tables import Table, mean_std

__all__ = ["EXPERIMENT", "interpretation_table", "terminal_table"]

# By key of the jobs, in the paper's order.
_METHODS = {method.regularizer: method for method in (GROUP, TL1, ITL)}
_HIDDEN, _OUTPUT = "hidden.weight", "output.weight"
_FILE = "interpretation/results.jsonl"


def _trainings(request: Request) -> list[Training]:
    recipe = replace(OURS, quick=request.quick)
    tuned = {method: searches("digits", method, recipe) for method in _METHODS.values()}
    return [
        Training(_FILE, method.regularizer, "digits", method, recipe, seed, searches=tuned[method])
        for method in _METHODS.values()
        for seed in request.seeds
    ]


def interpretation_table(outcomes: Sequence[Outcome]) -> Table:
    """Return mean ± standard deviation over the seeds, beside the published figures.

    A neuron is removed if all its incoming or all its outgoing weights are zero. Connections are those of both fully
    connected layers, then those of each.
    """
    columns = (
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
    return Table(columns, _rows(outcomes), "Last layers on DIGITS")


def terminal_table(outcomes: Sequence[Outcome]) -> Table:
    """Return the table for a terminal of 80 columns: without settings and single layers."""
    rows = [
        [label, f"{removed} ({removed_there.split()[0]})", f"{zeros} ({zeros_there})", accuracy]
        for label, _, removed, removed_there, zeros, zeros_there, _, _, accuracy, _ in _rows(outcomes)
    ]
    columns = ("regularizer", "neurons removed", "zero connections (%)", "accuracy (%)")
    return Table(columns, rows, "Last layers on DIGITS (published in brackets)")


def _rows(outcomes: Sequence[Outcome]) -> list[list[str]]:
    if unknown := sorted({outcome.job.key for outcome in outcomes} - set(_METHODS)):
        raise GossamerError(f"The table compares {', '.join(_METHODS)}; received outcomes of {', '.join(unknown)}.")
    groups = {key: [outcome for outcome in outcomes if outcome.job.key == key] for key in _METHODS}
    return [_row(key, group) for key, group in groups.items() if group]


def _row(key: str, outcomes: Sequence[Outcome]) -> list[str]:
    published, config = INTERPRETATION[key], outcomes[0].job.config
    setting = [("λ", config.strength), ("a", config.a), ("s", config.s)]
    layers = [{layer["name"]: layer for layer in outcome.result.measurement["layers"]} for outcome in outcomes]
    total = layers[0][_HIDDEN]["units"]
    removed = [total - outcome.result.small["units"][_HIDDEN] for outcome in outcomes]
    return [
        _METHODS[key].label,
        ", ".join(f"{name} {value:g}" for name, value in setting if value is not None),
        f"{mean_std(removed, 1)} of {total}",
        f"{published.neurons_removed} of 128",
        mean_std([_zeros(found[_HIDDEN], found[_OUTPUT]) for found in layers]),
        f"{100 * published.sparsity:.2f}",
        mean_std([_zeros(found[_HIDDEN]) for found in layers]),
        mean_std([_zeros(found[_OUTPUT]) for found in layers]),
        mean_std([100 * outcome.result.accuracy for outcome in outcomes]),
        str(len(outcomes)),
    ]


def _zeros(*layers: dict[str, Any]) -> float:
    """Return the percentage of zero weights in some layers together."""
    nonzeros = sum(int(layer["nonzeros"]) for layer in layers)
    return 100 * (1 - nonzeros / sum(int(layer["weights"]) for layer in layers))


EXPERIMENT = Experiment(
    folder="interpretation",
    datasets=("digits",),
    trainings=_trainings,
    kind=lambda request: OUTCOMES,
    read=lambda request: request.outcomes(_FILE),
    outputs={"table.md": lambda outcomes, path: write_text(path, interpretation_table(outcomes).markdown())},
    tables=lambda outcomes: [terminal_table(outcomes)],
)
