"""`nn.LSTMCell`, `nn.GRUCell` and `nn.RNNCell`: one step of a recurrent layer, called in a loop of the user.

A hidden unit is zero after a step if it was zero before and its candidate gate sees only zeros. The first step usually
starts from zeros, and every step calls the same weights, so a unit is always zero if that holds in each of the calls.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload

from gossamer.layers import LayerKind
from gossamer.layers.kinds import GRU_CELL, LSTM_CELL, RNN_CELL
from gossamer.shrinking.analyse.domain import AbstractValue, constants_along, expand_along
from gossamer.shrinking.analyse.facts import Analysis
from gossamer.shrinking.analyse.rules.layers import owner, units_along
from gossamer.shrinking.analyse.rules.recurrent import Cell, bind_states, record
from gossamer.shrinking.trace import arguments, size_hint

__all__ = ["CELLS", "recurrent_cell"]

aten = torch.ops.aten

CELLS: dict[OpOverload, LayerKind] = {
    aten.lstm_cell.default: LSTM_CELL,
    aten.gru_cell.default: GRU_CELL,
    aten.rnn_tanh_cell.default: RNN_CELL,
    aten.rnn_relu_cell.default: RNN_CELL,
}


def recurrent_cell(analysis: Analysis, node: fx.Node) -> Any:
    """One step: the cell reads its input and its hidden state, which carries the same units before and after."""
    named = arguments(node)
    kind = CELLS[node.target]  # type: ignore[index]
    parameters = [named[part] for part in ("w_ih", "w_hh", "b_ih", "b_hh") if named[part] is not None]
    names = [analysis.state_name(parameter) for parameter in parameters]
    if any(name is None for name in names):
        return analysis.opaque(node, f"{node.target} has computed weights")
    states = list(named["hx"]) if isinstance(named["hx"], list | tuple) else [named["hx"]]
    found = tuple(str(name) for name in names)
    cell = Cell(found, analysis.labels.fresh(analysis.traced.tensors[found[1]].size(1)), kind)
    bind_states(analysis, states, cell.hidden[None])
    source = analysis.value(named["input"])
    last = source.labels.dim() - 1
    units, inputs = units_along(analysis, source, last, str(node.target)), constants_along(source, last)
    before = [_zero(analysis.value(state)) for state in states]
    record(analysis, node, cell, (units, *inputs), before[0])
    analysis.count_units(owner(found[0]), kind, inputs=units, outputs=cell.hidden)
    after = _stays_zero(analysis, cell, inputs[1] & (inputs[0] == 0), before)
    return _results(node, cell.hidden, after)


def _zero(state: AbstractValue) -> Tensor:
    """Which units of a state are known to be zero in every sample."""
    constants, known = constants_along(state, state.labels.dim() - 1)
    return known & (constants == 0)


def _stays_zero(analysis: Analysis, cell: Cell, zero_inputs: Tensor, before: list[Tensor]) -> Tensor:
    """Units that are zero in all states, and whose candidate gate sees only zeros."""
    size = len(cell.hidden)
    rows = slice(cell.kind.candidate * size, (cell.kind.candidate + 1) * size)
    zero = torch.stack(before).all(0)
    for name, silent in zip(cell.names[:2], (zero_inputs, before[0]), strict=True):
        zero = zero & ~((analysis.tensor(name)[rows] != 0) & ~silent).any(1)
    for name in cell.names[2:]:
        zero = zero & (analysis.tensor(name)[rows] == 0)
    return zero


def _results(node: fx.Node, hidden: Tensor, zero: Tensor) -> Any:
    outputs = node.meta["val"]
    found = []
    for output in outputs if isinstance(outputs, tuple | list) else [outputs]:
        shape = tuple(size_hint(size) for size in output.shape)
        vectors = (hidden, torch.zeros(len(hidden), dtype=output.dtype), zero)
        found.append(AbstractValue(*(expand_along(vector, shape, len(shape) - 1) for vector in vectors)))
    return tuple(found) if isinstance(outputs, tuple | list) else found[0]
