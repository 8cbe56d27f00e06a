"""LSTM and GRU over a sequence of fixed length.

The products with the input are one linear layer over all steps. What is left is a scan: in each step the products with
the state, of which only non-zeros are stored and multiplied, and the gates.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gossamer.inference.kernel import Kernel, Operand
from gossamer.inference.operations.assemble import concatenated
from gossamer.inference.operations.convolution.sparse_weight import sparse_weight
from gossamer.inference.operations.layers import linear
from gossamer.inference.program import Operation, Shape, Value, viewed
from gossamer.inference.registry import Builder, Refusal, constant_of, lowers

__all__ = ["GruScan", "LstmScan"]

aten = torch.ops.aten


@dataclass(frozen=True, eq=False)
class _Scan(Operation):
    """A recurrent layer in one direction.

    Attributes:
        projected: Products of weights and inputs, with their bias: [steps, gates * width].
        states: What the states start from, each [width].
        weight: Of the state, [gates * width, width].
        bias: Of the state, [gates * width].
        backward: Whether the last step comes first.
    """

    projected: Value
    states: tuple[Value, ...]
    weight: Tensor
    bias: Tensor
    backward: bool

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The projected inputs, and the states."""
        return (self.projected, *self.states)

    @property
    def width(self) -> int:
        """Of a state."""
        return self.weight.shape[1]

    @property
    def steps(self) -> int:
        """The length of the sequence."""
        return self.projected.shape[0]

    def _order(self) -> list[int]:
        return list(range(self.steps))[:: -1 if self.backward else 1]

    def _write_scan(self, kernel: Kernel) -> None:
        """The loop over the steps, with the products of weights and state in `s`."""
        code, element, gates = kernel.code, kernel.target.element, len(self.bias)
        for name, x in zip("hc", kernel.inputs[1:], strict=False):
            code.add(f"{element} *{name} = {kernel.scratch(self.width)};")
            with code.loop("u", self.width):
                code.add(f"{name}[u] = {_read(kernel, x)};")
        code.add(f"{element} *s = {kernel.scratch(gates)};")
        no_block = np.zeros((self.width, 1, 1), dtype=np.int64)
        taps = sparse_weight(self.weight.numpy()[:, :, None, None], 1, np.arange(self.width)[:, None, None], no_block)
        values, offsets, counts = (kernel.constant(array) for array in (taps.values, taps.offsets, taps.counts))
        bias = kernel.constant(self.bias.numpy())
        with code.loop("t", self.steps):
            code.add(f"const int step = {f'{self.steps - 1} - t' if self.backward else 't'};")
            code.add(f"const {element} *in = x0 + step * {kernel.inputs[0].strides[0]};")
            code.add(f"{element} *to = y + step * {kernel.output.strides[0]};")
            code.add("int tap = 0;")
            with code.loop("o", gates):
                code.add(f"{element} sum = {kernel.target.splat(f'{bias}[o]')};")
                count = f"{counts}[0]" if taps.is_dense else f"{counts}[o]"
                offset = f"{offsets}[k]" if taps.is_dense else f"{offsets}[tap + k]"
                with code.loop("k", f"(int){count}"):
                    code.add(f"sum += {values}[tap + k] * h[{offset}];")
                code.add(f"tap += (int){count};", "s[o] = sum;")
            with code.loop("u", self.width):
                self._write_unit(kernel)
                code.add(f"to[u * {kernel.output.strides[1]}] = h[u];")

    def _gate(self, kernel: Kernel, gate: int) -> tuple[str, str]:
        """The C expressions for what input and state contribute to a gate of unit `u`."""
        unit = f"u + {gate * self.width}"
        return f"in[({unit}) * {kernel.inputs[0].strides[1]}]", f"s[{unit}]"

    @abstractmethod
    def _write_unit(self, kernel: Kernel) -> None:
        """Write the new state of unit `u`."""


def _read(kernel: Kernel, x: Operand) -> str:
    read = f"{x.name}[u * {x.strides[0]}]"
    return kernel.target.splat(read) if x.is_constant else read


@dataclass(frozen=True, eq=False)
class LstmScan(_Scan):
    """The gates i, f, g, o: c' = f c + i g, h' = o tanh(c'). The result is h of each step, and the last c."""

    @property
    def shape(self) -> Shape:
        """One row more than there are steps."""
        return (self.steps + 1, self.width)

    def reference(self, *tensors: Tensor) -> Tensor:
        """Step by step."""
        projected, h, c = tensors
        result = torch.empty(self.shape)
        for step in self._order():
            i, f, g, o = (projected[step] + self.weight @ h + self.bias).chunk(4)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            result[step] = h
        result[-1] = c
        return result

    def emit(self, kernel: Kernel) -> None:
        """The scan, and the last c."""
        self._write_scan(kernel)
        row, column = kernel.output.strides
        with kernel.code.loop("u", self.width):
            kernel.code.add(f"y[{self.steps * row} + u * {column}] = c[u];")

    def _write_unit(self, kernel: Kernel) -> None:
        code, element = kernel.code, kernel.target.element
        sigmoid, tanh = kernel.helper("sigmoid"), kernel.helper("tanh")
        for number, (name, function) in enumerate(zip("ifgo", (sigmoid, sigmoid, tanh, sigmoid), strict=True)):
            code.add(f"const {element} {name} = {function}({' + '.join(self._gate(kernel, number))});")
        code.add("c[u] = f * c[u] + i * g;", f"h[u] = o * {tanh}(c[u]);")


@dataclass(frozen=True, eq=False)
class GruScan(_Scan):
    """The gates r, z and the candidate n: h' = (1 - z) n + z h. The result is h of each step."""

    @property
    def shape(self) -> Shape:
        """A row for each step."""
        return (self.steps, self.width)

    def reference(self, *tensors: Tensor) -> Tensor:
        """Step by step."""
        projected, h = tensors
        result = torch.empty(self.shape)
        for step in self._order():
            from_input, from_state = projected[step].chunk(3), (self.weight @ h + self.bias).chunk(3)
            r, z = ((a + b).sigmoid() for a, b in zip(from_input[:2], from_state[:2], strict=True))
            n = (from_input[2] + r * from_state[2]).tanh()
            h = (1 - z) * n + z * h
            result[step] = h
        return result

    def emit(self, kernel: Kernel) -> None:
        """The scan."""
        self._write_scan(kernel)

    def _write_unit(self, kernel: Kernel) -> None:
        code, element, sigmoid = kernel.code, kernel.target.element, kernel.helper("sigmoid")
        code.add(f"const {element} r = {sigmoid}({' + '.join(self._gate(kernel, 0))});")
        code.add(f"const {element} z = {sigmoid}({' + '.join(self._gate(kernel, 1))});")
        from_input, from_state = self._gate(kernel, 2)
        code.add(f"const {element} n = {kernel.helper('tanh')}({from_input} + r * {from_state});")
        code.add("h[u] = (1.0f - z) * n + z * h[u];")


def _lower_recurrent(operator: str, scan: type[LstmScan] | type[GruScan]) -> None:
    @lowers(getattr(aten, operator))
    def rule(
        build: Builder,
        x: Value,
        hx: Any,
        params: Sequence[Value],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[Value, ...]:
        states = hx if scan is LstmScan else [hx]
        _check(states, dropout, train)
        output, scans = _layers(build, x, states, params, has_biases, num_layers, bidirectional, batch_first, scan)
        # behind the steps there is a row for each further state
        last = [[_row(result, 0 if backward else -len(states)) for result, backward in scans]]
        last += [[_row(result, -number) for result, _ in scans] for number in range(1, len(states))]
        return output, *(_stacked(build, rows) for rows in last)


_lower_recurrent("lstm", LstmScan)
_lower_recurrent("gru", GruScan)


def _check(states: object, dropout: float, train: bool) -> None:
    if train and dropout:
        raise Refusal(f"its dropout is {dropout}, also in evaluation mode")
    if not isinstance(states, list | tuple):
        raise Refusal("it takes a packed sequence; only sequences of fixed length are lowered")


def _layers(
    build: Builder,
    x: Value,
    states: Sequence[Value],
    params: Sequence[Value],
    has_biases: bool,
    num_layers: int,
    bidirectional: bool,
    batch_first: bool,
    scan: type[LstmScan] | type[GruScan],
) -> tuple[Value, list[tuple[Value, bool]]]:
    """All layers and directions: the output, and the result of each scan with its direction."""
    batch = 0 if batch_first else 1
    sequence = viewed(x, lambda tensor: tensor.squeeze(batch))
    per_cell = 4 if has_biases else 2
    directions = (False, True) if bidirectional else (False,)
    if len(params) != per_cell * num_layers * len(directions):
        raise Refusal("its states are projected (proj_size)")
    scans: list[tuple[Value, bool]] = []
    for _ in range(num_layers):
        outputs = []
        for backward in directions:
            cell = len(scans)
            weights = params[cell * per_cell : (cell + 1) * per_cell]
            starts = tuple(viewed(state, _picked(cell)) for state in states)
            result = _cell(build, sequence, starts, weights, backward, scan)
            scans.append((result, backward))
            outputs.append(viewed(result, _rows(sequence.shape[0])))
        sequence = outputs[0] if len(outputs) == 1 else build.add(concatenated(outputs, 1))
    return viewed(sequence, lambda tensor: tensor.unsqueeze(batch)), scans


def _picked(cell: int) -> Callable[[Tensor], Tensor]:
    return lambda tensor: tensor[cell, 0]


def _rows(count: int) -> Callable[[Tensor], Tensor]:
    return lambda tensor: tensor[:count]


def _cell(
    build: Builder,
    sequence: Value,
    states: tuple[Value, ...],
    weights: Sequence[Value],
    backward: bool,
    scan: type[LstmScan] | type[GruScan],
) -> Value:
    from_input, from_state, *biases = weights
    matrix = constant_of(from_state, "weight").tensor.detach().contiguous()
    bias = constant_of(biases[1], "bias").tensor.detach().contiguous() if biases else torch.zeros(len(matrix))
    projected = linear(build, sequence, from_input, biases[0] if biases else None)
    return build.add(scan(projected, states, matrix, bias, backward))


def _row(scan: Value, number: int) -> Value:
    return viewed(scan, lambda tensor: tensor[number][None, None])


def _stacked(build: Builder, rows: Sequence[Value]) -> Value:
    return rows[0] if len(rows) == 1 else build.add(concatenated(rows, 0))
