"""The weights of a layer as the kernels read them: for each output channel its non-zeros, as value and offset.

The offset says where the input of a tap lies, relative to that of the output: channel, row and column are one
number. A layer with hardly any zeros (`DENSE_FROM`) is stored with them, as then one list of offsets serves all output
channels and that is smaller.

Large inputs are split into blocks, so that what a tile of outputs reads of one block stays in the first-level cache;
the lists are then ordered by block, output channel, offset.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gossamer.inference.kernel import Array

__all__ = ["DENSE_FROM", "SparseWeight", "is_dense", "smallest_unsigned", "sparse_weight"]

# A stored non-zero takes six bytes, an element of a dense layer four.
DENSE_FROM = 2 / 3


@dataclass(frozen=True)
class SparseWeight:
    """The taps of all output channels.

    Attributes:
        values: The weights.
        offsets: Of each weight; in a dense layer of the weights of one channel.
        counts: Taps of each output channel in each block; in a dense layer of any output channel.
        is_dense: Whether all output channels share their offsets.
        inputs: Where the input of each output channel starts, if they differ: in a dense layer with groups.
        rows: The output channels in the order of the lists, if it is not their own.
        blocks: Blocks of inputs.
        block_starts: The first value, and the first offset, of each block.
    """

    values: Array
    offsets: Array
    counts: Array
    is_dense: bool
    inputs: Array | None
    rows: Array | None
    blocks: int
    block_starts: tuple[Array, Array]


def is_dense(weight: Array) -> bool:
    """Whether a layer with this weight is stored with its zeros."""
    return bool(np.count_nonzero(weight) >= DENSE_FROM * weight.size)


def sparse_weight(
    weight: Array,
    groups: int,
    offsets_of: npt.NDArray[np.int64],
    block_of: npt.NDArray[np.int64],
    *,
    ordered: bool = False,
) -> SparseWeight:
    """The taps of `weight` [outputs, inputs / groups, rows, columns].

    Args:
        weight: The weights.
        groups: Groups of output channels, each of which reads its own input channels.
        offsets_of: The offset of each input channel and tap, [inputs, rows, columns], within its block.
        block_of: The block of each input channel and tap.
        ordered: Whether output channels are ordered by their number of taps. Processors foresee how often a loop runs
            if it ran as often the last times.
    """
    outputs, inputs = weight.shape[:2]
    blocks = int(block_of.max(initial=0)) + 1
    if is_dense(weight):
        return _dense(weight, groups, offsets_of, block_of, blocks)
    row, channel, *tap = np.nonzero(weight)
    channel = channel + row // (outputs // groups) * inputs
    offsets, block = offsets_of[channel, tap[0], tap[1]], block_of[channel, tap[0], tap[1]]
    rows = np.argsort(np.bincount(row, minlength=outputs), kind="stable") if ordered else np.arange(outputs)
    row = np.argsort(rows)[row]
    order = np.lexsort((offsets, row, block))
    counts = np.zeros((blocks, outputs), dtype=np.int64)
    np.add.at(counts, (block, row), 1)
    return SparseWeight(
        values=_not_empty(weight[np.nonzero(weight)][order]),
        offsets=_not_empty(_unsigned(offsets[order])),
        counts=_unsigned(counts),
        is_dense=False,
        inputs=None,
        rows=_unsigned(rows) if ordered else None,
        blocks=blocks,
        block_starts=(_starts(counts.sum(1)), _starts(counts.sum(1))),
    )


def _dense(
    weight: Array, groups: int, offsets_of: npt.NDArray[np.int64], block_of: npt.NDArray[np.int64], blocks: int
) -> SparseWeight:
    assert blocks == 1 or groups == 1
    outputs, inputs, *taps = weight.shape
    first = offsets_of[:inputs].reshape(-1)
    owner = block_of[:inputs].reshape(-1)
    order = np.lexsort((first, owner))
    sizes = np.bincount(owner, minlength=blocks)
    ends = np.cumsum(sizes)
    flat = weight.reshape(outputs, -1)[:, order]
    values = np.concatenate([flat[:, end - n : end].reshape(-1) for n, end in zip(sizes, ends, strict=True)])
    starts = (
        offsets_of[::inputs, 0, 0] - offsets_of[0, 0, 0] if taps[0] and taps[1] else np.zeros(groups, dtype=np.int64)
    )
    each = np.repeat(starts, outputs // groups)
    return SparseWeight(
        values=_not_empty(values),
        offsets=_not_empty(_unsigned(first[order])),
        counts=_unsigned(sizes),
        is_dense=True,
        inputs=_unsigned(each) if groups > 1 else None,
        rows=None,
        blocks=blocks,
        block_starts=(_starts(sizes * outputs), _starts(sizes)),
    )


def _starts(sizes: npt.NDArray[np.int64]) -> Array:
    return (np.cumsum(sizes) - sizes).astype(np.uint32)


def smallest_unsigned(count: int) -> type[np.uint16] | type[np.uint32]:
    """The type that holds the numbers below `count` in the fewest bytes."""
    return np.uint16 if count <= 2**16 else np.uint32


def _unsigned(numbers: npt.NDArray[np.int64]) -> Array:
    assert numbers.size == 0 or numbers.min() >= 0
    return numbers.astype(smallest_unsigned(int(numbers.max(initial=0)) + 1))


def _not_empty(array: Array) -> Array:
    """C has no arrays without elements."""
    return array if array.size else np.zeros(1, dtype=array.dtype)
