"""The summary of a page in words, and its key figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gossamer.visualization.data import Network, Page, Run, Variant
from gossamer.visualization.formatting import count, file_size, measured_seconds, percent, times

__all__ = ["KeyFigure", "alerts", "key_figures", "sentences"]

_MOST_COMPARED = 3


@dataclass(frozen=True)
class KeyFigure:
    """A number, what it is, and what it is made of."""

    name: str
    value: str
    note: str


def key_figures(page: Page) -> list[KeyFigure]:
    """The numbers that a reader looks for first."""
    found = []
    if page.runs and page.runs[0].accuracy is not None:
        dense = next((run for run in page.runs[1:] if run.params_kept == 1.0 and run.accuracy is not None), None)
        note = f"dense network: {percent(dense.accuracy)}" if dense else ""
        found.append(KeyFigure(page.score.capitalize(), percent(page.runs[0].accuracy), note))
    return found + (_network_figures(page.network) if page.network else [])


def sentences(page: Page) -> list[str]:
    """What happened to the network, in a few sentences."""
    found = []
    if page.runs:
        found += _accuracy(page)
    if page.network is not None:
        found += [_weights(page.network), *_units(page.network), *_bytes_and_latency(page.network)]
    return found


def alerts(page: Page) -> list[str]:
    """What a reader must not overlook."""
    network = page.network
    if network is None:
        return []
    found = []
    if empty := [layer.label for layer in network.layers if layer.trained.nonzeros == 0]:
        found.append(f"All weights are zero in: {', '.join(empty)}. Train with a smaller strength.")
    if network.histogram.nonfinite:
        found.append(
            f"Weights that are infinite or not a number: {count(network.histogram.nonfinite)}. "
            "They count as non-zero and are in no histogram; the training has diverged."
        )
    if network.problem is not None:
        found.append(f"Shrinking is not possible, so no unit is removed: {network.problem}")
    return found


def _accuracy(page: Page) -> list[str]:
    main, *others = page.runs
    if main.accuracy is None:
        return []
    first = f"{page.score.capitalize()} is {percent(main.accuracy)}."
    compared = [run for run in others if run.accuracy is not None]
    if not 0 < len(compared) <= _MOST_COMPARED:
        return [first]
    return [f"{first} For comparison: {'; '.join(_compared(run) for run in compared)}."]


def _compared(run: Run) -> str:
    kept = "" if run.params_kept is None else f" with {percent(run.params_kept)} of the weights"
    return f"{run.label} has {percent(run.accuracy)}{kept}"


def _weights(network: Network) -> str:
    total, kept = network.deployed.total, network.deployed
    trained = network.trained.total.nonzeros
    gone = "" if trained == total.nonzeros else f" (as trained {count(trained)}; those of dead units leave with them)"
    return (
        f"Of {count(total.weights)} weights, {count(total.nonzeros)} are not zero{gone}: {percent(kept.params_kept)}. "
        f"Of {count(total.macs)} MACs, {count(total.macs_nonzero)} have such a weight: {percent(kept.flops_kept)}."
    )


def _units(network: Network) -> list[str]:
    removal, shrunk = network.removal, network.shrunk
    if removal is None or shrunk is None:
        return []
    if removal.before == removal.after:
        return ["There is no unit that shrinking could remove."]
    return [
        f"Shrinking removes {count(removal.units_removed)} of {count(removal.units)} units without changing the "
        f"outputs: {count(shrunk.total.weights)} weights, zeros included, and {count(shrunk.total.macs)} MACs remain."
    ]


def _bytes_and_latency(network: Network) -> list[str]:
    dense, *others = network.variants
    found = []
    for form in others:
        if form.file_bytes is not None and dense.file_bytes is not None:
            sizes = f"{file_size(form.file_bytes)} instead of {file_size(dense.file_bytes)}"
            found.append(f"The file of the {form.name} network takes {sizes}.")
        timed = [
            f"{measured_seconds(form.seconds[label])} instead of {measured_seconds(seconds)} for {label}"
            for label, seconds in dense.seconds.items()
        ]
        if timed:
            found.append(f"A forward pass of the {form.name} network takes {', and '.join(timed)}.")
    return [" ".join(found)] if found else []


def _network_figures(network: Network) -> list[KeyFigure]:
    kept = network.deployed
    total = kept.total
    found = [
        KeyFigure("Weights kept", percent(kept.params_kept), f"{count(total.nonzeros)} of {count(total.weights)}"),
        KeyFigure("MACs kept", percent(kept.flops_kept), f"{count(total.macs_nonzero)} of {count(total.macs)}"),
    ]
    dense, *others = network.variants
    return [*found, *_ratios(dense, others)]


def _ratios(dense: Variant, others: Sequence[Variant]) -> list[KeyFigure]:
    """The dense network over the last form that has a file, and over the last form."""
    found = []
    stored = [form.file_bytes for form in others if form.file_bytes]
    if dense.file_bytes and stored:
        note = f"{file_size(dense.file_bytes)} → {file_size(stored[-1])}"
        found.append(KeyFigure("Compression", times(dense.file_bytes / stored[-1]), note))
    for label, seconds in dense.seconds.items() if others else ():
        note = f"{measured_seconds(seconds)} → {measured_seconds(others[-1].seconds[label])}"
        found.append(KeyFigure(f"Speed-up, {label}", times(seconds / others[-1].seconds[label]), note))
    return found
