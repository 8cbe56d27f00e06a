"""Rows of a table, chosen by indices.

Where most of the table is zero, only its non-zeros are stored, row by row. An index outside the table makes the
compiled network report an error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from gossamer.inference.kernel import Array, Kernel
from gossamer.inference.operations.convolution.sparse_weight import DENSE_FROM, smallest_unsigned
from gossamer.inference.program import Operation, Shape, Value
from gossamer.inference.registry import Builder, Refusal, constant_of, lowers
from gossamer.inference.source import nest

__all__ = ["Embedding"]

aten = torch.ops.aten

# Indices reach the C code as float32, which holds all integers up to here.
_LARGEST_TABLE = 2**24


@dataclass(frozen=True, eq=False)
class Embedding(Operation):
    """table[indices]."""

    indices: Value
    table: Tensor

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The indices."""
        return (self.indices,)

    @property
    def shape(self) -> Shape:
        """That of the indices, and the width of the table."""
        return (*self.indices.shape, self.table.shape[1])

    def reference(self, *tensors: Tensor) -> Tensor:
        """PyTorch's own."""
        return functional.embedding(tensors[0].long(), self.table)

    def emit(self, kernel: Kernel) -> None:
        """For each index, and in batch code for each lane, a copy of the row."""
        code, x, y = kernel.code, kernel.inputs[0], kernel.output
        rows, width = self.table.shape
        table = self.table.numpy()
        dense = np.count_nonzero(table) >= DENSE_FROM * table.size
        arrays = [kernel.constant(array) for array in ((table,) if dense else _rows(table))]
        lane = "[lane]" if kernel.target.is_batch else ""
        with nest(code, x.shape, [x.strides, y.strides[:-1]]) as (source, target):
            code.add(f"{kernel.target.element} *to = y + {target};")
            with code.block(f"for (int lane = 0; lane < {kernel.target.lanes}; lane++)" if lane else ""):
                code.add(f"float number = {x.name}[{source}]{lane};")
                with code.block(f"if (!(number >= 0.0f && number < {rows}.0f))"):
                    code.add(f"{kernel.error()} = 1;", "number = 0.0f;")
                code.add("const int row = (int)number;")
                if dense:
                    with code.loop("c", width):
                        code.add(f"to[c * {y.strides[-1]}]{lane} = {arrays[0]}[row * {width} + c];")
                else:
                    starts, columns, values = arrays
                    with code.loop("c", width):
                        code.add(f"to[c * {y.strides[-1]}]{lane} = 0.0f;")
                    with code.block(f"for (uint32_t k = {starts}[row]; k < {starts}[row + 1]; k++)"):
                        code.add(f"to[{columns}[k] * {y.strides[-1]}]{lane} = {values}[k];")

    def describe(self) -> str:
        """The size of the table."""
        return f"embedding of {math.prod(self.indices.shape)} of {self.table.shape[0]} rows"


def _rows(table: Array) -> tuple[Array, Array, Array]:
    """Where each row starts, and column and value of each non-zero."""
    row, column = np.nonzero(table)
    starts = np.searchsorted(row, np.arange(len(table) + 1)).astype(np.uint32)
    return starts, column.astype(smallest_unsigned(table.shape[1])), table[row, column]


@lowers(aten.embedding, integers=True)
def _embedding(
    build: Builder,
    weight: Value,
    indices: Value,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Value:
    del padding_idx, scale_grad_by_freq, sparse
    table = constant_of(weight, "table").tensor
    if table.shape[0] > _LARGEST_TABLE:
        raise Refusal(f"its table has {table.shape[0]:,} rows, more than {_LARGEST_TABLE:,}")
    return build.add(Embedding(indices, table))
