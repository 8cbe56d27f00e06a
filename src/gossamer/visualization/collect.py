"""Collect what a report shows of a network: counts, histograms, pictures, the plan, bytes and latency."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from gossamer.errors import GossamerError
from gossamer.example import Example, call_with
from gossamer.layers import Weight, find_weights, original_module
from gossamer.measurement import Measurement, latencies, measure
from gossamer.shrinking import Plan, plan
from gossamer.store import save
from gossamer.visualization.data import Histogram, Layer, Network, Removal, UnitRow, Variant
from gossamer.visualization.images import filters_of, pattern_of

__all__ = ["collect"]

_BINS_EACH_SIDE = 30


@torch.no_grad()
def collect(
    model: nn.Module,
    example: Example,
    *,
    dense: nn.Module | None = None,
    native: nn.Module | None = None,
    files: Mapping[str, Path] | None = None,
    inputs: Mapping[str, Example] | None = None,
    rounds: int = 50,
) -> Network:
    """Count a trained network before and after `shrink`, against the dense network it was trained from.

    Args:
        model: The trained network.
        example: What it is called with.
        dense: The network before units were removed from it; None if `model` still has all of them.
        native: The same network in the form that executes only the non-zeros.
        files: Files of the variants (`dense`, `trained`, `shrunk`, `native`), for their sizes. Of the others, a
            temporary file is written.
        inputs: What the latency is measured on, by name; None for `example`.
        rounds: Forward passes of each variant that are timed; 0 for none.
    """
    model = original_module(model)
    full = model if dense is None else original_module(dense)
    before, trained = measure(full, example), measure(model, example)
    _check_same_layers(before, trained)
    removal, problem, small = _shrunk(model, example)
    shrunk = None if small is None else measure(small, example)
    weights = find_weights(model, example)
    # As long as no unit was removed, the network as trained is the dense one.
    trained_form = {} if trained.total.weights == before.total.weights else {"trained": model}
    others = {"shrunk": small, "native": native}
    forms = {"dense": full, **trained_form, **{name: form for name, form in others.items() if form is not None}}
    return Network(
        name=type(model).__name__,
        dense=before,
        trained=trained,
        shrunk=shrunk,
        layers=_layers(weights, before, trained, shrunk),
        histogram=_histogram(weights),
        filters=filters_of(weights[0], next(iter(call_with(model, example).tensors()), None)),
        removal=removal,
        problem=problem,
        variants=_variants(forms, example, files or {}, inputs or {"the example": example}, rounds),
    )


def _check_same_layers(before: Measurement, trained: Measurement) -> None:
    wanted, found = ([layer.name for layer in one.layers] for one in (before, trained))
    if wanted != found:
        raise GossamerError(
            f"`dense` has the layers {', '.join(wanted)}, and `model` has {', '.join(found)}. "
            "Give as `dense` the network that `model` was trained from."
        )


def _shrunk(model: nn.Module, example: Example) -> tuple[Removal | None, str | None, nn.Module | None]:
    """The plan and the smaller network as the user's class; where `shrink` refuses the model, the reason."""
    try:
        made = plan(model, example, form="module")
    except GossamerError as error:
        return None, str(error), None
    return _removal(made), None, made.apply()


def _removal(made: Plan) -> Removal:
    rows = tuple(
        UnitRow(
            where=channels.where,
            before=channels.units,
            after=channels.kept,
            unread=channels.unread,
            constant=channels.constant,
            reasons=tuple(channels.reasons.items()),
        )
        for channels in made.channels
    )
    return Removal(made.weights_before, made.weights_after, made.notes, rows)


def _layers(
    weights: tuple[Weight, ...], before: Measurement, trained: Measurement, shrunk: Measurement | None
) -> tuple[Layer, ...]:
    smaller = {layer.name: layer for layer in shrunk.layers} if shrunk is not None else {}
    return tuple(
        Layer(
            name=weight.name,
            shape=tuple(weight.parameter.shape),
            dense=full,
            trained=own,
            shrunk=smaller.get(weight.name),
            histogram=_histogram((weight,)),
            pattern=pattern_of(weight),
        )
        for weight, full, own in zip(weights, before.layers, trained.layers, strict=True)
    )


def _histogram(weights: Sequence[Weight]) -> Histogram:
    """Bins of equal width over the finite non-zero weights of all layers, with an edge at zero."""
    edges = _edges([_nonzeros(weight) for weight in weights])
    counts = np.sum([np.histogram(_nonzeros(weight), edges)[0] for weight in weights], axis=0)
    parameters = [weight.parameter.detach() for weight in weights]
    return Histogram(
        zeros=sum(int((parameter == 0).sum()) for parameter in parameters),
        nonfinite=sum(int((~parameter.isfinite()).sum()) for parameter in parameters),
        edges=tuple(map(float, edges)),
        counts=tuple(map(int, counts)),
    )


def _nonzeros(weight: Weight) -> npt.NDArray[np.float64]:
    values = weight.parameter.detach()
    found: npt.NDArray[np.float64] = values[(values != 0) & values.isfinite()].cpu().double().numpy()
    return found


def _edges(layers: Sequence[npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
    largest = max((float(np.abs(values).max()) for values in layers if len(values)), default=1.0)
    edges: npt.NDArray[np.float64] = np.linspace(-largest, largest, 2 * _BINS_EACH_SIDE + 1)
    return edges


def _variants(
    forms: Mapping[str, nn.Module],
    example: Example,
    files: Mapping[str, Path],
    inputs: Mapping[str, Example],
    rounds: int,
) -> tuple[Variant, ...]:
    timed = {name: latencies(list(forms.values()), given, rounds) for name, given in inputs.items() if rounds}
    found = []
    for index, (name, form) in enumerate(forms.items()):
        total = None if name == "native" else measure(form, example).total
        found.append(
            Variant(
                name=name,
                weights=None if total is None else total.weights,
                macs=None if total is None else total.macs,
                memory_bytes=_memory_bytes(form),
                file_bytes=files[name].stat().st_size if name in files else _file_bytes(name, form),
                seconds={label: taken[index] for label, taken in timed.items()},
            )
        )
    return tuple(found)


def _memory_bytes(model: nn.Module) -> int | None:
    """Bytes of parameters and buffers, tied ones once; None for a form that holds its weights elsewhere."""
    tensors = [*model.parameters(), *model.buffers()]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors) if tensors else None


def _file_bytes(name: str, model: nn.Module) -> int | None:
    """Size of the file that `save` writes, if shrunk without zeros; None for a network that it does not take."""
    if name == "native":
        return None
    with tempfile.TemporaryDirectory(prefix="gossamer-") as folder:
        path = Path(folder, "network.safetensors")
        try:
            save(model, path, sparse=name == "shrunk")
        except GossamerError:
            return None
        return path.stat().st_size
