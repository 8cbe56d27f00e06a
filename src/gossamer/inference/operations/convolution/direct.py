"""A layer element by element: a float in portable code, a vector of samples in batch code.

A tile of neighbouring outputs of one channel is summed at once. The input has zeros around it where the taps reach
over its edge, either because it is stored so or in a copy.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from gossamer.inference.kernel import Kernel
from gossamer.inference.layout import NO_BORDER
from gossamer.inference.operations.convolution.inner_loop import InnerLoop, tile_loop
from gossamer.inference.operations.convolution.phases import Direction, Phase
from gossamer.inference.operations.convolution.sparse_weight import sparse_weight
from gossamer.inference.operations.convolution.tiling import Tile, Tiling, Work, best_tiling, read_cost, tiles
from gossamer.inference.source import index, literal, nest

if TYPE_CHECKING:
    from gossamer.inference.operations.convolution.operation import Convolution

__all__ = ["emit_direct"]


class Source(NamedTuple):
    """The input planes: a pointer to the first element, and strides."""

    name: str
    channel: int
    row: int
    column: int


def emit_direct(layer: Convolution, kernel: Kernel) -> None:
    """Write the body of the function."""
    source = _source(layer, kernel)
    found = layer.phases()
    for phase in found:
        with kernel.code.block(""):
            _emit_phase(layer, kernel, phase, source)


def _source(layer: Convolution, kernel: Kernel) -> Source:
    """The input as it is, or a copy with zeros around it."""
    (x,), border = kernel.inputs, layer.border()
    strides = layer.planes(x.strides)
    if border == NO_BORDER or x.border.covers(border):
        return Source(x.name, *strides)
    (rows, columns), channels = layer.plane, x.shape[1]
    pitch = columns + border.left + border.right
    plane = (rows + border.top + border.bottom) * pitch
    copy = kernel.scratch(channels * plane)
    code = kernel.code
    with code.loop("i", channels * plane):
        code.add(f"{copy}[i] = {kernel.target.splat('0.0f')};")
    inner = (plane, pitch, 1)
    start = border.top * pitch + border.left
    with nest(code, (channels, rows, columns), [strides, inner]) as (read, write):
        code.add(f"{copy}[{start} + {write}] = {x.name}[{read}];")
    return Source(f"({copy} + {start})", *inner)


def _emit_phase(layer: Convolution, kernel: Kernel, phase: Phase, source: Source) -> None:
    code, rows, columns, target = kernel.code, phase.rows, phase.columns, kernel.target
    weight = layer.taps_of(phase)
    channels = layer.weight.shape[1] * layer.groups
    tiling = _tiling(layer, kernel, phase, int(np.count_nonzero(weight)), channels)
    tile, per_block = tiling.tile, math.ceil(channels / tiling.blocks)
    low = min(rows.offsets, default=0) * source.row + min(columns.offsets, default=0) * source.column
    offsets = (
        (np.arange(channels) % per_block)[:, None, None] * source.channel
        + np.array(rows.offsets, dtype=np.int64)[None, :, None] * source.row
        + np.array(columns.offsets, dtype=np.int64)[None, None, :] * source.column
        - low
    )
    steps = (rows.stride * source.row, columns.stride * source.column)
    loop = InnerLoop(
        kernel,
        sparse_weight(weight, layer.groups, offsets, _owners(offsets.shape, per_block), ordered=target.fast),
        layer.bias.numpy(),
        [i * steps[0] + j * steps[1] for i in range(tile.rows) for j in range(tile.columns)],
        target.element,
        target.splat,
        lambda pointer: f"*({pointer})",
    )

    with (
        tile_loop(code, "r", rows.count, tile.rows) as (row, _),
        tile_loop(code, "c", columns.count, tile.columns) as (column, _),
    ):

        def finish() -> None:
            _finish(layer, kernel, phase, tile, loop, (row, column))

        start = f"{source.name} + {index([row, column], steps, low)}"
        if loop.weight.blocks == 1:
            code.add(f"const {target.element} *base = {start};")
            loop.write(finish)
        else:
            partial = kernel.scratch(loop.outputs * tile.sums)
            with code.loop("block", loop.weight.blocks):
                code.add(f"const {target.element} *base = {start} + block * {per_block * source.channel};")
                loop.write(finish, f"{partial} + o * {tile.sums}")


def _tiling(layer: Convolution, kernel: Kernel, phase: Phase, taps: int, channels: int) -> Tiling:
    rows, columns, pool = phase.rows, phase.columns, layer.pooling
    work = Work(
        rows=rows.count,
        columns=columns.count,
        outputs=len(layer.bias),
        taps=taps,
        planes=channels,
        extra_rows=_spread(rows.offsets),
        row_step=rows.stride,
        extra_columns=_spread(columns.offsets),
        column_step=columns.stride,
        vector=4 * kernel.target.lanes,
        cache=kernel.target.cache if kernel.target.is_batch and layer.groups == 1 else 0,
        read=read_cost(4 * kernel.target.lanes),
    )
    pool_size = (1, 1) if pool is None else (pool.rows, pool.columns)
    candidates = tiles(rows.count, columns.count, kernel.target.sums, *pool_size)
    return best_tiling(work, candidates)


def _owners(shape: tuple[int, ...], per_block: int) -> npt.NDArray[np.int64]:
    """The block of each channel and tap."""
    return np.broadcast_to((np.arange(shape[0]) // per_block)[:, None, None], shape)


def _spread(offsets: tuple[int, ...]) -> int:
    return max(offsets, default=0) - min(offsets, default=0)


def _finish(
    layer: Convolution, kernel: Kernel, phase: Phase, tile: Tile, loop: InnerLoop, start: tuple[str, str]
) -> None:
    """Activations, pooling, and the store, for the tile that starts at this row and column."""
    code, pool, sums = kernel.code, layer.pooling, loop.sums
    for function in layer.before:
        code.add(*(f"{name} = {function.expression(kernel, name)};" for name in sums))
    grid = [sums[row * tile.columns : (row + 1) * tile.columns] for row in range(tile.rows)]
    height, width = (1, 1) if pool is None else (pool.rows, pool.columns)
    channel, row_stride, column_stride = layer.planes(kernel.output.strides)
    first = [
        _output_offset(direction, name, size, stride)
        for direction, name, size, stride in (
            (phase.rows, start[0], height, row_stride),
            (phase.columns, start[1], width, column_stride),
        )
    ]
    terms = " + ".join(["y", f"{loop.output} * {channel}", *(offset for offset in first if offset != "0")])
    code.add(f"{kernel.target.element} *to = {terms};")
    for i in range(tile.rows // height):
        for j in range(tile.columns // width):
            window = [name for row in grid[i * height : (i + 1) * height] for name in row[j * width : (j + 1) * width]]
            result = _pooled(kernel, layer, window)
            for function in layer.after:
                code.add(f"{result} = {function.expression(kernel, result)};")
            offset = i * phase.rows.step * row_stride + j * phase.columns.step * column_stride
            code.add(f"to[{offset}] = {result};")


def _output_offset(direction: Direction, name: str, pool: int, stride: int) -> str:
    """The offset of the tile's first output in one direction."""
    offset = name if pool == 1 or name == "0" else f"{name} / {pool}"
    return index([offset], [direction.step * stride], direction.origin * stride)


def _pooled(kernel: Kernel, layer: Convolution, window: list[str]) -> str:
    """Reduce a window into its first variable."""
    first, *others = window
    if layer.pooling is None:
        return first
    if layer.pooling.kind == "max":
        for name in others:
            kernel.code.add(f"{first} = {kernel.helper('maximum')}({first}, {name});")
    else:
        kernel.code.add(f"{first} = ({' + '.join(window)}) * {literal(1.0 / len(window))};")
    return first
