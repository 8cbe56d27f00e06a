"""LSTM, GRU and plain recurrent layers: hidden units, through all gates, steps, layers and directions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload

from gossamer.shrinking.analysis import Analysis, ParameterView
from gossamer.shrinking.reading import Layer, Uniform, Use
from gossamer.shrinking.rules.creation import CREATORS
from gossamer.shrinking.rules.layers import units_along
from gossamer.shrinking.shadow import Shadow, spread, vector_along

__all__ = ["GATES", "recurrent"]

aten = torch.ops.aten

GATES: dict[OpOverload, tuple[int, int]] = {
    aten.lstm.input: (4, 2),
    aten.gru.input: (3, 2),
    aten.rnn_tanh.input: (1, 0),
    aten.rnn_relu.input: (1, 0),
}
"""How many gates there are, and which of them is the candidate: where it is zero, a unit that starts at zero stays."""


@dataclass(frozen=True)
class _Cell:
    """The parameters of one layer in one direction, and the labels of its hidden units."""

    names: tuple[str, ...]
    hidden: Tensor
    gates: int
    candidate: int


def recurrent(run: Analysis, node: fx.Node) -> Any:
    """Each layer reads its input and itself; all layers and directions keep equally many units."""
    named = run.arguments(node)
    gates, candidate = GATES[node.target]  # type: ignore[index]
    states = list(named["hx"]) if isinstance(named["hx"], list | tuple) else [named["hx"]]
    names = [run.state(p) for p in named["params"]]
    directions = 2 if named["bidirectional"] else 1
    layers = int(named["num_layers"])
    each = len(names) // (layers * directions)
    if any(n is None for n in names) or each != (4 if named["has_biases"] else 2):
        return run.opaque(node, "a recurrent layer with computed or projected weights")
    cells = []
    for place in range(layers * directions):
        part = tuple(str(n) for n in names[place * each : (place + 1) * each])
        size = run.traced.tensors[part[1]].size(1)
        cells.append(_Cell(part, run.labels.fresh(size), gates, candidate))
    rows = torch.stack([cell.hidden for cell in cells])
    zero_start = _bind_states(run, states, rows)
    _note_sizes(run, node, cells, named["input"])
    known = _run_layers(run, node, cells, run.shadow(named["input"]), directions, zero_start)
    return _results(run, node, rows, known, directions, len(states))


def _bind_states(run: Analysis, states: list[fx.Node], rows: Tensor) -> bool:
    """Initial states carry the hidden units; returns whether they are all zero."""
    zero = True
    for state in states:
        shadow = run.shadow(state)
        zero = zero and bool((shadow.known & (shadow.value == 0)).all())
        labels = rows.view(len(rows), *(1,) * (shadow.labels.dim() - 2), -1).expand(shadow.shape)
        if shadow.labelled:
            run.labels.tie(shadow.labels, labels)
        elif state.target in CREATORS:
            run.shadows[state] = Shadow(labels, shadow.value, shadow.known)
        else:
            run.labels.pin(rows, "its initial state is given from outside")
    if len(rows) > 1:
        reason = "all layers and directions keep equally many hidden units"
        run.uniforms.append(Uniform((rows,), reason, rows_may_go=False))
    return zero


def _note_sizes(run: Analysis, node: fx.Node, cells: list[_Cell], source: fx.Node) -> None:
    owner = run.owner(cells[0].names[0])
    run.note(owner, "hidden_size", cells[0].hidden)
    shadow = run.shadow(source)
    run.note(owner, "input_size", units_along(run, shadow, shadow.labels.dim() - 1, str(node.target)))


def _run_layers(
    run: Analysis, node: fx.Node, cells: list[_Cell], source: Shadow, directions: int, zero_start: bool
) -> Tensor:
    """Read layer by layer; returns which hidden units are always zero, as cells by units."""
    labels = units_along(run, source, source.labels.dim() - 1, str(node.target))
    constants, known = vector_along(source, source.labels.dim() - 1)
    zeros = []
    for start in range(0, len(cells), directions):
        level = cells[start : start + directions]
        found = []
        for cell in level:
            quiet = _always_zero(run, cell, known & (constants == 0)) & zero_start
            _read(run, node, cell, labels, constants, known, quiet)
            found.append(quiet)
        zeros += found
        labels, known = torch.cat([cell.hidden for cell in level]), torch.cat(found)
        constants = torch.zeros(len(known), dtype=constants.dtype)
    return torch.stack(zeros)


def _always_zero(run: Analysis, cell: _Cell, quiet_inputs: Tensor) -> Tensor:
    """Units whose candidate gate sees only zeros: assume all, and drop those that something speaks to."""
    size = len(cell.hidden)
    rows = slice(cell.candidate * size, (cell.candidate + 1) * size)
    outside = (run.tensor(cell.names[0])[rows] != 0) & ~quiet_inputs
    quiet = ~outside.any(1)
    biases = [run.tensor(name)[rows] for name in cell.names[2:]]
    for bias in biases:
        quiet = quiet & (bias == 0)
    inside = run.tensor(cell.names[1])[rows] != 0
    while True:
        fewer = quiet & ~(inside & ~quiet).any(1)
        if torch.equal(fewer, quiet):
            return quiet
        quiet = fewer


def _read(
    run: Analysis, node: fx.Node, cell: _Cell, labels: Tensor, constants: Tensor, known: Tensor, quiet: Tensor
) -> None:
    """The two weights of a cell as layers whose outputs are the gates of the hidden units."""
    gate_labels = cell.hidden.repeat(cell.gates)
    biases = (*cell.names[2:], None, None)[:2]
    incoming = ((labels, constants, known), (cell.hidden, torch.zeros(len(quiet)), quiet))
    for name, bias, (units, values, sure) in zip(cell.names[:2], biases, incoming, strict=True):
        weight = run.tensor(name)
        view = ParameterView(name, (0, 1), tuple(torch.arange(n) for n in weight.shape))
        run.bind(view, 0, gate_labels)
        run.bind(view, 1, units)
        if bias is not None:
            run.bind(ParameterView(bias, (0,), (torch.arange(weight.size(0)),)), 0, gate_labels)
        obstacle = "" if bias is not None else f"there is no bias beside {name}"
        layer = run.layers.setdefault(
            (name, bias, ""), Layer(name, bias, (weight != 0)[None], weight[None], not obstacle, obstacle)
        )
        layer.uses.append(Use(gate_labels[None], units[None], values[None], sure[None], node.name))


def _results(
    run: Analysis, node: fx.Node, rows: Tensor, quiet: Tensor, directions: int, states: int
) -> tuple[Shadow, ...]:
    """The sequence of the last layer, and the final state of every layer."""
    values = node.meta["val"]
    shapes = [tuple(s.labels.shape) for s in run.fresh_result(node)]
    dtype = values[0].dtype
    last = len(shapes[0]) - 1
    sequence = Shadow(
        spread(rows[-directions:].flatten(), shapes[0], last),
        torch.zeros((), dtype=dtype).expand(shapes[0]),
        spread(quiet[-directions:].flatten(), shapes[0], last),
    )
    found = [sequence]
    for shape in shapes[1 : states + 1]:
        between = (1,) * (len(shape) - 2)
        labels, known = (t.view(len(rows), *between, -1).expand(shape) for t in (rows, quiet))
        found.append(Shadow(labels, torch.zeros((), dtype=dtype).expand(shape), known))
    return tuple(found)
