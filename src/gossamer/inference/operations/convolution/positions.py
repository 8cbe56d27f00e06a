"""A layer of one sample, in vectors of neighbouring output positions.

The rows that a tile of outputs reads are first copied into planes of their own, one for each channel and column of
taps: plane (c, j) holds at row and column what tap column j of channel c reads for that output column. Padding, stride
and dilation are gone then, and every read is of a whole vector at an aligned address, where shifted reads of the input
itself would cross cache lines. Planes that no non-zero reads are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gossamer.inference.kernel import FLOATS_IN_A_LINE, Array, Kernel
from gossamer.inference.operations.convolution.epilogue import finish_tile
from gossamer.inference.operations.convolution.inner_loop import InnerLoop, tile_loop
from gossamer.inference.operations.convolution.phases import Phase
from gossamer.inference.operations.convolution.sparse_weight import is_dense, smallest_unsigned, sparse_weight
from gossamer.inference.operations.convolution.tiling import Tile, Tiling, Work, best_tiling, read_cost, tiles
from gossamer.inference.source import index
from gossamer.inference.targets import Target, vector_prefix

if TYPE_CHECKING:
    from gossamer.inference.operations.convolution.operation import Convolution

__all__ = ["Planes", "emit_over_positions"]

_MOST_FETCHED = 16  # lines of the cache, for each output channel of a tile


@dataclass(frozen=True)
class Planes:
    """The copies of the input, and how output positions are numbered on them.

    Rows are as long as a multiple of the vector; or, where that would waste too much, `flat`: the rows lie behind each
    other, and the whole plane is one row.
    """

    layer: Convolution
    phase: Phase
    vector: int
    is_flat: bool

    @cached_property
    def weight(self) -> Array:
        """The weights, [outputs, channels / groups, rows, columns]."""
        return self.layer.taps_of(self.phase)

    @property
    def pitch(self) -> int:
        """Places from one row to the next."""
        columns = self.phase.columns.count
        return columns if self.is_flat else math.ceil(columns / self.vector) * self.vector

    @property
    def grid(self) -> tuple[int, int]:
        """Rows of outputs, and vectors in each."""
        rows, columns = self.phase.rows.count, self.phase.columns.count
        return (1, math.ceil(rows * columns / self.vector)) if self.is_flat else (rows, self.pitch // self.vector)

    @property
    def extra_rows(self) -> int:
        """Rows of a plane beyond those of the outputs."""
        return int(self._down.max(initial=0))

    def rows_for(self, tile: Tile) -> int:
        """Rows of a plane for a tile."""
        return (self.phase.rows.count if self.is_flat else tile.rows) + self.extra_rows

    def size_for(self, tile: Tile) -> int:
        """Places from one plane to the next."""
        return math.ceil(self.rows_for(tile) * self.pitch / self.vector) * self.vector

    @cached_property
    def keys(self) -> npt.NDArray[np.int64]:
        """Tap column, row phase (input row modulo stride) and channel of each plane, in that order."""
        keys: npt.NDArray[np.int64] = np.argwhere(self._used)
        return keys

    @cached_property
    def _relative(self) -> npt.NDArray[np.int64]:
        offsets = np.array(self.phase.rows.offsets, dtype=np.int64)
        relative: npt.NDArray[np.int64] = offsets - min(self.phase.rows.offsets, default=0)
        return relative

    @property
    def _row_phases(self) -> npt.NDArray[np.int64]:
        return self._relative % self.phase.rows.stride

    @property
    def _down(self) -> npt.NDArray[np.int64]:
        return self._relative // self.phase.rows.stride

    @cached_property
    def _used(self) -> npt.NDArray[np.bool_]:
        """Which (tap column, row phase, channel) a non-zero reads."""
        outputs, inputs, _, width = self.weight.shape
        used = np.zeros((width, self.phase.rows.stride, inputs * self.layer.groups), dtype=bool)
        kept: Array = np.ones_like(self.weight, dtype=bool) if is_dense(self.weight) else self.weight != 0
        any_output = kept.reshape(self.layer.groups, outputs // self.layer.groups, *kept.shape[1:]).max(1)
        for tap, phase in enumerate(self._row_phases):
            used[:, phase] |= any_output[:, :, tap].reshape(-1, width).T
        return used

    def offsets(self, per_block: int, size: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Offset within its block, and block, of each channel and tap."""
        number = np.cumsum(self._used.reshape(-1)).reshape(self._used.shape) - 1
        plane = number[:, self._row_phases].transpose(2, 1, 0).clip(0)
        return plane % per_block * size + self._down[None, :, None] * self.pitch, plane // per_block

    def tiling(self, target: Target) -> Tiling:
        """The cheapest tiling."""
        rows, vectors = self.grid
        aligned = not self.is_flat or self.pitch % self.vector == 0
        work = Work(
            rows=rows,
            columns=vectors,
            outputs=len(self.weight),
            taps=int(np.count_nonzero(self.weight)),
            planes=max(1, len(self.keys)),
            extra_rows=0 if self.is_flat else self.extra_rows,
            row_step=1,
            extra_columns=math.ceil(self.extra_rows * self.pitch / self.vector) if self.is_flat else 0,
            column_step=1,
            vector=4 * self.vector,
            cache=target.cache if self.layer.groups == 1 else 0,
            read=read_cost(4 * self.vector, aligned),
            copied_vectors=math.ceil(self.pitch / self.vector),
            copied_rows=self.rows_for(Tile(1, 1)) if self.is_flat else 0,
        )
        return best_tiling(work, self._tiles(target.sums))

    def _tiles(self, most: int) -> Iterator[Tile]:
        rows, vectors = self.grid
        pool = self.layer.pooling
        if pool is None:
            yield from tiles(rows, vectors, most)
        elif self.is_flat:
            yield Tile(1, vectors)
        elif self.vector % pool.columns == 0:
            yield from tiles(rows, vectors, most, pool.rows)
        else:  # a window may lie in two vectors
            yield from (tile for tile in tiles(rows, vectors, max(most, pool.rows * vectors), pool.rows, vectors))


def best_planes(layer: Convolution, phase: Phase, target: Target) -> tuple[Planes, Tiling]:
    """The cheapest planes, over the widths of vectors and over rows with and without gaps."""
    found = []
    for vector in target.vectors:
        for is_flat in (False, True):
            planes = Planes(layer, phase, vector, is_flat)
            fits = layer.pooling is None or planes.grid[1] <= target.sums  # all windows of a flat plane at once
            if not is_flat or (phase.columns.count % vector and fits):
                found.append((planes, planes.tiling(target)))
    return min(found, key=lambda pair: pair[1].cost)


def emit_over_positions(layer: Convolution, kernel: Kernel) -> None:
    """Write the body of the function."""
    (phase,) = layer.phases()
    planes, tiling = best_planes(layer, phase, kernel.target)
    code, tile, size = kernel.code, tiling.tile, planes.size_for(tiling.tile)
    per_block = math.ceil(max(len(planes.keys), 1) / tiling.blocks)
    prefix = vector_prefix(planes.vector)
    loop = InnerLoop(
        kernel,
        sparse_weight(planes.weight, layer.groups, *planes.offsets(per_block, size), ordered=True),
        layer.bias.numpy(),
        [i * planes.pitch + j * planes.vector for i in range(tile.rows) for j in range(tile.columns)],
        f"V{planes.vector}",
        lambda number: f"{prefix}splat({number})",
        lambda pointer: f"{prefix}load({pointer})",
    )
    rows, vectors = planes.grid
    blocks = loop.weight.blocks
    copies = kernel.scratch(per_block * size + planes.vector)
    with tile_loop(code, "r", rows, tile.rows) as (row, _), _block_loop(kernel, blocks) as block:
        _write_copy(planes, kernel, tile, per_block, copies, row, block)
        with tile_loop(code, "c", vectors, tile.columns) as (column, number):
            code.add(f"const float *base = {copies} + {index([column], [planes.vector])};")
            partial, meanwhile = "", []
            if blocks > 1:
                across = math.ceil(vectors / tile.columns)
                sums = kernel.scratch(loop.outputs * across * tile.sums * planes.vector)
                partial = f"(V{planes.vector} *){sums} + (o * {across} + {number}) * {tile.sums}"
                part = index([block, number], [across, 1])
                meanwhile = _fetch_ahead(planes, kernel, tile, row, part, blocks * across)
            loop.write(lambda: finish_tile(layer, kernel, planes, tile, loop, (row, column)), partial, meanwhile)


@contextmanager
def _block_loop(kernel: Kernel, blocks: int) -> Iterator[str]:
    """The loop over the blocks of planes, if there are several; yields the number of the block."""
    if blocks == 1:
        yield "0"
        return
    with kernel.code.loop("block", blocks):
        yield "block"


def _fetch_ahead(planes: Planes, kernel: Kernel, tile: Tile, row: str, part: str, parts: int) -> list[str]:
    """Lines that fetch what the next tile of rows reads of channel `o`, the `part`-th of so many parts.

    Without them, the copy for that tile waits for the memory: processors do not foresee reads of a few rows of each
    channel. Channels often lie a power of two apart. A part of all of them then falls into few sets of the first-level
    cache, and the block that is in it stays. Behind an input of the network lies that of the next sample, of which the
    last tile fetches the first rows.
    """
    channel, row_stride, column_stride = planes.layer.planes(kernel.inputs[0].strides)
    rows, channels, outputs = planes.phase.rows, kernel.inputs[0].shape[1], len(planes.weight)
    lines = math.ceil(tile.rows * rows.stride * row_stride / FLOATS_IN_A_LINE / parts)
    if row == "0" or column_stride != 1 or lines * math.ceil(channels / outputs) > _MOST_FETCHED:
        return []
    last = rows.stride * (tile.rows - 1) + max(rows.offsets)  # that this tile reads
    behind = index([row], [rows.stride * row_stride], (last + 1) * row_stride)
    first = f"({row} < {rows.count - tile.rows} ? {behind} : {channels * channel})"
    kernel.code.add(f"const float *next = x0 + {index([f'({part})', first], [lines * FLOATS_IN_A_LINE, 1])};")
    found = [f"const float *ahead = next + o * {channel};"]
    for start in range(0, channels, outputs):
        offsets = [start * channel + line * FLOATS_IN_A_LINE for line in range(lines)]
        fetch = [f"__builtin_prefetch(ahead + {offset});" for offset in offsets]
        found += [f"if (o < {channels - start}) {{", *fetch, "}"] if start + outputs > channels else fetch
    return found


def _write_copy(planes: Planes, kernel: Kernel, tile: Tile, per_block: int, target: str, row: str, block: str) -> None:
    """Write the copy of one block, of the rows for the tile that starts at `row`."""
    code, keys = kernel.code, planes.keys
    if not len(keys):
        code.add("(void)x0;")
        return
    channels = kernel.constant(keys[:, 2].astype(smallest_unsigned(kernel.inputs[0].shape[1])))
    code.add(f"const int first = {index([block], [per_block])};")
    groups = np.unique(keys[:, :2], axis=0)
    for column, phase in groups:
        (members,) = np.nonzero((keys[:, :2] == (column, phase)).all(1))
        start, stop = int(members[0]), int(members[-1]) + 1
        with code.block(""):
            code.add(f"const int last = first + {per_block} < {stop} ? first + {per_block} : {stop};")
            with code.block(f"for (int p = first > {start} ? first : {start}; p < last; p++)"):
                code.add(f"float *to = {target} + (p - first) * {planes.size_for(tile)};")
                _write_plane(planes, kernel, tile, int(column), int(phase), channels, row)


def _write_plane(
    planes: Planes, kernel: Kernel, tile: Tile, column: int, phase: int, channels: str, start: str
) -> None:
    """Write the copy of plane `p`, row by row; rows and columns outside the input are zero."""
    code, rows, columns = kernel.code, planes.phase.rows, planes.phase.columns
    channel, row_stride, column_stride = planes.layer.planes(kernel.inputs[0].strides)
    height, width = planes.layer.plane
    top = min(rows.offsets) + phase
    shift = columns.offsets[column]
    first = max(0, -(shift // columns.stride))  # the first column inside: stride c + shift >= 0
    last = min(columns.count, (width - 1 - shift) // columns.stride + 1)
    if last <= first:  # all of it lies in the padding
        code.add(f"(void)x0, (void){channels};", f"memset(to, 0, {4 * planes.rows_for(tile) * planes.pitch});")
        return
    code.add(f"const float *in = x0 + {channels}[p] * {channel};")
    with code.loop("m", planes.rows_for(tile)):
        code.add(f"const int row = {index(['m', start], [rows.stride, rows.stride], top)};")
        code.add(f"float *line = to + m * {planes.pitch};")
        inside = (
            top >= 0 and (planes.phase.rows.count - 1) * rows.stride + planes.extra_rows * rows.stride + top < height
        )
        if not inside:
            with code.block(f"if (row < 0 || row >= {height})"):
                code.add(f"memset(line, 0, {4 * planes.pitch});", "continue;")
        if first:
            code.add(f"memset(line, 0, {4 * first});")
        source = f"in + row * {row_stride} + {(first * columns.stride + shift) * column_stride}"
        step = columns.stride * column_stride
        if step == 1:
            code.add(f"memcpy(line + {first}, {source}, {4 * (last - first)});")
        else:
            code.add(f"const float *from = {source};")
            with code.loop("c", last - first):
                code.add(f"line[{first} + c] = from[c * {step}];")
        if last < planes.pitch:
            code.add(f"memset(line + {last}, 0, {4 * (planes.pitch - last)});")
