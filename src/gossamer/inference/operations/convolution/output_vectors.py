"""A linear layer of one sample, in vectors of outputs.

    y[o : o + lanes] = bias[o : o + lanes] + sum over c of x[c] weight[o : o + lanes, c]

A column of a block of outputs is stored whole if one of its weights is not zero. This pays where a column holds two
non-zeros or more on average; sparser layers are computed output by output. Outputs are ordered by their number of
non-zeros, so that the full ones share their blocks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gossamer.inference.kernel import C_TYPES, Array, Kernel
from gossamer.inference.operations.convolution.sparse_weight import smallest_unsigned
from gossamer.inference.targets import Target, vector_prefix

if TYPE_CHECKING:
    from gossamer.inference.operations.convolution.operation import Convolution

__all__ = ["ColumnBlocks", "best_blocks", "emit_output_vectors"]

# Cycles, measured: a non-zero and an output of the other kernel; a stored column, by the cache that it comes from; a
# block.
_NONZERO, _OUTPUT = 1.2, 8.0
_COLUMN, _COLUMN_FROM_SECOND_LEVEL, _COLUMN_FROM_MEMORY = 1.0, 1.5, 3.0
_BLOCK = 30.0
_SECOND_LEVEL = 512 * 1024  # bytes

# As many sums as a multiply-add takes cycles, so that none waits for the one before.
_SUMS = 4


@dataclass(frozen=True)
class ColumnBlocks:
    """The weights of a linear layer, in blocks of `lanes` outputs.

    Attributes:
        lanes: Outputs in a block.
        rows: The outputs in the order of the blocks.
        values: The stored columns, [columns of all blocks, lanes].
        columns: The input of each stored column.
        counts: Stored columns of each block.
    """

    lanes: int
    rows: npt.NDArray[np.int64]
    values: Array
    columns: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]

    def cycles(self, cache: int) -> float:
        """The estimated time, with a first-level cache of so many bytes."""
        column = _COLUMN_FROM_MEMORY
        if self.values.nbytes <= _SECOND_LEVEL:
            column = _COLUMN if self.values.nbytes <= cache / 2 else _COLUMN_FROM_SECOND_LEVEL
        return len(self.columns) * column * self.lanes / 16 + len(self.counts) * _BLOCK


def column_blocks(weight: Array, lanes: int) -> ColumnBlocks:
    """Order and store the weight [outputs, inputs]."""
    rows = np.argsort(-np.count_nonzero(weight, axis=1), kind="stable")
    blocks = math.ceil(len(rows) / lanes)
    whole = np.zeros((blocks * lanes, weight.shape[1]), dtype=np.float32)
    whole[: len(rows)] = weight[rows]
    by_column = whole.reshape(blocks, lanes, -1).transpose(0, 2, 1)
    block, column = np.nonzero(by_column.any(2))
    return ColumnBlocks(lanes, rows, by_column[block, column], column, np.bincount(block, minlength=blocks))


def best_blocks(weight: Array, target: Target) -> ColumnBlocks | None:
    """The blocks for this weight [outputs, inputs], where they are faster than output by output; None elsewhere."""
    found = [column_blocks(weight, lanes) for lanes in target.vectors if lanes <= len(weight)]
    best = min(found, key=lambda blocks: blocks.cycles(target.cache), default=None)
    by_output = np.count_nonzero(weight) * _NONZERO + len(weight) * _OUTPUT
    return best if best is not None and best.cycles(target.cache) < by_output else None


def emit_output_vectors(layer: Convolution, kernel: Kernel, blocks: ColumnBlocks) -> None:
    """Write the body of the function."""
    code, lanes, prefix = kernel.code, blocks.lanes, vector_prefix(blocks.lanes)
    (x,), outputs = kernel.inputs, len(blocks.rows)
    inner, outer = x.strides[1], kernel.output.strides[-1]
    bias = np.zeros(len(blocks.counts) * lanes, dtype=np.float32)
    bias[:outputs] = layer.bias.numpy()[blocks.rows]
    offsets = _unsigned(blocks.columns * inner)
    counts = _unsigned(blocks.counts)
    values, at, count = (kernel.constant(array) for array in (blocks.values, offsets, counts))
    start, rows = kernel.constant(bias), kernel.constant(_unsigned(blocks.rows * outer))
    code.add(f"const float *v = {values};")
    code.add(f"const {C_TYPES[str(offsets.dtype)]} *at = {at};")
    with code.loop("block", len(blocks.counts)):
        code.add(f"V{lanes} s0 = {prefix}load({start} + block * {lanes});")
        code.add(f"V{lanes} {', '.join(f's{number} = {prefix}splat(0.0f)' for number in range(1, _SUMS))};")
        code.add(f"int k = (int){count}[block];")
        with code.block(f"for (; k >= {_SUMS}; k -= {_SUMS}, v += {_SUMS * lanes}, at += {_SUMS})"):
            for number in range(_SUMS):
                code.add(f"s{number} += {prefix}load(v + {number * lanes}) * {x.name}[at[{number}]];")
        with code.block(f"for (; k > 0; k--, v += {lanes}, at++)"):
            code.add(f"s0 += {prefix}load(v) * {x.name}[*at];")
        code.add(f"s0 += {' + '.join(f's{number}' for number in range(1, _SUMS))};")
        for function in (*layer.before, *layer.after):
            code.add(f"s0 = {function.expression(kernel, 's0', prefix=prefix)};")
        code.add(f"const int left = {outputs} - block * {lanes};")
        with code.loop("lane", f"(left < {lanes} ? left : {lanes})"):
            code.add(f"y[{rows}[block * {lanes} + lane]] = s0[lane];")


def _unsigned(numbers: npt.NDArray[np.int64]) -> Array:
    if not numbers.size:  # C has no arrays without elements
        return np.zeros(1, dtype=np.uint16)
    return numbers.astype(smallest_unsigned(int(numbers.max()) + 1))
