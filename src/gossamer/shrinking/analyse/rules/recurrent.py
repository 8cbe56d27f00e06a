"""LSTM, GRU and plain recurrent layers: one unit per hidden state, through all gates and time steps.

A hidden unit that starts at zero stays zero while its candidate gate sees only zeros. Which units these are is a
greatest fixed point: assume all, then drop units that receive a non-zero input until nothing changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload

from gossamer.layers.kind import LayerKind
from gossamer.layers.kinds import GRU, LSTM, RNN
from gossamer.shrinking.analyse.constraints import EqualCounts
from gossamer.shrinking.analyse.dependencies import LayerCall, ParameterView
from gossamer.shrinking.analyse.domain import AbstractValue, constants_along, expand_along
from gossamer.shrinking.analyse.facts import Analysis, Layer
from gossamer.shrinking.analyse.rules.creation import CREATORS
from gossamer.shrinking.analyse.rules.layers import owner, units_along
from gossamer.shrinking.trace import arguments

__all__ = ["RECURRENT", "Cell", "bind_states", "record", "recurrent"]

aten = torch.ops.aten

RECURRENT: dict[OpOverload, LayerKind] = {
    aten.lstm.input: LSTM,
    aten.gru.input: GRU,
    aten.rnn_tanh.input: RNN,
    aten.rnn_relu.input: RNN,
}


@dataclass(frozen=True)
class Cell:
    """The parameters of one layer in one direction, and the labels of its hidden units."""

    names: tuple[str, ...]
    hidden: Tensor
    kind: LayerKind


def recurrent(analysis: Analysis, node: fx.Node) -> Any:
    """Each cell reads its input and its own hidden state; all cells keep equally many units."""
    named = arguments(node)
    kind = RECURRENT[node.target]  # type: ignore[index]
    states = list(named["hx"]) if isinstance(named["hx"], list | tuple) else [named["hx"]]
    names = [analysis.state_name(p) for p in named["params"]]
    directions = 2 if named["bidirectional"] else 1
    layers = int(named["num_layers"])
    each = len(names) // (layers * directions)
    if any(n is None for n in names) or each != (4 if named["has_biases"] else 2):
        return analysis.opaque(node, f"{node.target} has computed or projected weights")
    cells = []
    for place in range(layers * directions):
        part = tuple(str(n) for n in names[place * each : (place + 1) * each])
        size = analysis.traced.tensors[part[1]].size(1)
        cells.append(Cell(part, analysis.labels.fresh(size), kind))
    rows = torch.stack([cell.hidden for cell in cells])
    starts_at_zero = bind_states(analysis, states, rows)
    source = analysis.value(named["input"])
    units = units_along(analysis, source, source.labels.dim() - 1, str(node.target))
    analysis.count_units(owner(cells[0].names[0]), kind, inputs=units, outputs=cells[0].hidden)
    constants = constants_along(source, source.labels.dim() - 1)
    known_zero = _run_layers(analysis, node, cells, units, constants, directions, starts_at_zero)
    return _results(analysis, node, rows, known_zero, directions, len(states))


def bind_states(analysis: Analysis, states: list[fx.Node], rows: Tensor) -> bool:
    """Initial states carry the hidden units; returns whether all of them are zero."""
    zero = True
    for state in states:
        value = analysis.value(state)
        zero = zero and bool(value.is_zero.all())
        labels = rows.view(len(rows), *(1,) * (value.labels.dim() - 2), -1).expand(value.shape)
        if value.has_units:
            analysis.labels.unify(value.labels, labels)
        elif state.target in CREATORS:
            analysis.values[state] = AbstractValue(labels, value.constant, value.known)
        else:
            analysis.labels.pin(rows, "its initial state is an input")
    if len(rows) > 1:
        reason = "all layers and directions must keep the same number of hidden units"
        analysis.equal_counts.append(EqualCounts((rows,), reason, rows_removable=False))
    return zero


def _run_layers(
    analysis: Analysis,
    node: fx.Node,
    cells: list[Cell],
    units: Tensor,
    constants: tuple[Tensor, Tensor],
    directions: int,
    starts_at_zero: bool,
) -> Tensor:
    """Record layer after layer; returns which hidden units are always zero, as cells by units."""
    constant, known = constants
    zeros: list[Tensor] = []
    for start in range(0, len(cells), directions):
        layer = cells[start : start + directions]
        found = []
        for cell in layer:
            zero = _always_zero(analysis, cell, known & (constant == 0)) & starts_at_zero
            record(analysis, node, cell, (units, constant, known), zero)
            found.append(zero)
        zeros += found
        units, known = torch.cat([cell.hidden for cell in layer]), torch.cat(found)
        constant = torch.zeros(len(known), dtype=constant.dtype)
    return torch.stack(zeros)


def _always_zero(analysis: Analysis, cell: Cell, zero_inputs: Tensor) -> Tensor:
    """Units whose candidate gate sees only zeros: assume all, then drop units that receive a non-zero input."""
    size = len(cell.hidden)
    rows = slice(cell.kind.candidate * size, (cell.kind.candidate + 1) * size)
    from_inputs = (analysis.tensor(cell.names[0])[rows] != 0) & ~zero_inputs
    zero = ~from_inputs.any(1)
    for name in cell.names[2:]:
        zero = zero & (analysis.tensor(name)[rows] == 0)
    from_hidden = analysis.tensor(cell.names[1])[rows] != 0
    while True:
        fewer = zero & ~(from_hidden & ~zero).any(1)
        if torch.equal(fewer, zero):
            return zero
        zero = fewer


def record(analysis: Analysis, node: fx.Node, cell: Cell, inputs: tuple[Tensor, Tensor, Tensor], zero: Tensor) -> None:
    """Both weights of a cell as layers whose outputs are the gates of the hidden units."""
    gate_labels = cell.hidden.repeat(cell.kind.gates)
    biases = (*cell.names[2:], None, None)[:2]
    incoming = (inputs, (cell.hidden, torch.zeros(len(zero)), zero))
    for name, bias, (units, constants, known) in zip(cell.names[:2], biases, incoming, strict=True):
        weight = analysis.tensor(name)
        view = ParameterView(name, (0, 1), tuple(torch.arange(n) for n in weight.shape))
        analysis.bind(view, 0, gate_labels)
        analysis.bind(view, 1, units)
        if bias is not None:
            analysis.bind(ParameterView(bias, (0,), (torch.arange(weight.size(0)),)), 0, gate_labels)
        obstacle = "" if bias is not None else f"{name} has no bias"
        layer = analysis.layers.setdefault(
            (name, bias, ""), Layer(name, bias, (weight != 0)[None], weight[None], obstacle)
        )
        layer.calls.append(LayerCall(gate_labels[None], units[None], constants[None], known[None], node.name))


def _results(
    analysis: Analysis, node: fx.Node, rows: Tensor, zero: Tensor, directions: int, states: int
) -> tuple[AbstractValue, ...]:
    """The sequence of the last layer, and the final state of every layer."""
    shapes = [tuple(value.shape) for value in analysis.unknown_result(node)]
    dtype = node.meta["val"][0].dtype
    last = len(shapes[0]) - 1
    sequence = AbstractValue(
        expand_along(rows[-directions:].flatten(), shapes[0], last),
        torch.zeros((), dtype=dtype).expand(shapes[0]),
        expand_along(zero[-directions:].flatten(), shapes[0], last),
    )
    found = [sequence]
    for shape in shapes[1 : states + 1]:
        between = (1,) * (len(shape) - 2)
        labels, known = (t.view(len(rows), *between, -1).expand(shape) for t in (rows, zero))
        found.append(AbstractValue(labels, torch.zeros((), dtype=dtype).expand(shape), known))
    return tuple(found)
