"""A layer element by element: a float in portable code, a vector of samples in batch code.

A tile of neighbouring outputs of one channel is summed at once. The input has zeros around it where the taps reach
over its edge, either because it is stored so or in a copy.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from gossamer.inference.ctext import index, literal, nest
from gossamer.inference.kernel import Kernel
from gossamer.inference.layout import Frame
from gossamer.inference.operations.convolution.parts import Direction, Part
from gossamer.inference.operations.convolution.tables import table
from gossamer.inference.operations.convolution.tiles import Tile, best_tile, channel_blocks
from gossamer.inference.operations.convolution.walk import Walk, tile_loop

if TYPE_CHECKING:
    from gossamer.inference.operations.convolution.operation import Convolution

__all__ = ["Source", "emit_by_elements", "reach"]

_BYTES_OF_A_VECTOR = 32


class Source(NamedTuple):
    """The input planes: a pointer to the first place, and strides."""

    name: str
    channel: int
    row: int
    column: int


def emit_by_elements(layer: Convolution, kernel: Kernel) -> None:
    """Write the body of the function."""
    source = _source(layer, kernel)
    found = layer.parts()
    for part in found:
        with kernel.code.block(""):
            _emit_part(layer, kernel, part, source)


def _source(layer: Convolution, kernel: Kernel) -> Source:
    """The input as it is, or a copy with zeros around it."""
    (x,), frame = kernel.inputs, layer.frame()
    strides = layer.planes(x.strides)
    if frame == Frame() or x.frame.covers(frame):
        return Source(x.name, *strides)
    (rows, columns), channels = layer.plane, x.shape[1]
    pitch = columns + frame.left + frame.right
    plane = (rows + frame.top + frame.bottom) * pitch
    copy = kernel.scratch(channels * plane)
    code = kernel.code
    with code.loop("i", channels * plane):
        code.add(f"{copy}[i] = {kernel.target.splat('0.0f')};")
    inner = (plane, pitch, 1)
    start = frame.top * pitch + frame.left
    with nest(code, (channels, rows, columns), [strides, inner]) as (read, write):
        code.add(f"{copy}[{start} + {write}] = {x.name}[{read}];")
    return Source(f"({copy} + {start})", *inner)


def _emit_part(layer: Convolution, kernel: Kernel, part: Part, source: Source) -> None:
    code, rows, columns = kernel.code, part.rows, part.columns
    pool = layer.pooling
    pool_size = (1, 1) if pool is None else (pool.rows, pool.columns)
    tile = best_tile(rows.count, columns.count, kernel.target.accumulators, *pool_size)
    weight = layer.taps_of(part)
    channels = layer.weight.shape[1] * layer.groups
    blocks = _blocks(layer, kernel, part, tile, channels, int(np.count_nonzero(weight)))
    per_block = math.ceil(channels / blocks)
    low = min(rows.offsets, default=0) * source.row + min(columns.offsets, default=0) * source.column
    places = (
        (np.arange(channels) % per_block)[:, None, None] * source.channel
        + np.array(rows.offsets, dtype=np.int64)[None, :, None] * source.row
        + np.array(columns.offsets, dtype=np.int64)[None, None, :] * source.column
        - low
    )
    steps = (rows.stride * source.row, columns.stride * source.column)
    walk = Walk(
        kernel,
        table(weight, layer.groups, places, _owners(places.shape, per_block)),
        layer.bias.numpy(),
        [i * steps[0] + j * steps[1] for i in range(tile.rows) for j in range(tile.columns)],
        kernel.target.element,
        lambda pointer: f"*({pointer})",
        per_block * source.channel,
    )
    with tile_loop(code, "r", rows.count, tile.rows), tile_loop(code, "c", columns.count, tile.columns):
        start = index(["r", "c"], steps, low)
        code.add(f"const {kernel.target.element} *base = {source.name} + {start};")
        walk.write(lambda: _finish(layer, kernel, part, tile, walk.sums))


def _blocks(layer: Convolution, kernel: Kernel, part: Part, tile: Tile, channels: int, nonzeros: int) -> int:
    if not kernel.target.is_batch or layer.groups > 1:
        return 1
    area = reach(part.rows, tile.rows) * reach(part.columns, tile.columns)
    return channel_blocks(channels, area * _BYTES_OF_A_VECTOR, nonzeros / len(layer.bias))


def _owners(shape: tuple[int, ...], per_block: int) -> npt.NDArray[np.int64]:
    """The block of each channel and tap."""
    return np.broadcast_to((np.arange(shape[0]) // per_block)[:, None, None], shape)


def reach(direction: Direction, outputs: int) -> int:
    """Input places that so many neighbouring outputs read."""
    spread = max(direction.offsets, default=0) - min(direction.offsets, default=0)
    return (outputs - 1) * direction.stride + spread + 1


def _finish(layer: Convolution, kernel: Kernel, part: Part, tile: Tile, sums: list[str]) -> None:
    """Activations, pooling, and the store."""
    code, pool = kernel.code, layer.pooling
    for function in layer.before:
        code.add(*(f"{name} = {function.expression(kernel, name)};" for name in sums))
    grid = [sums[row * tile.columns : (row + 1) * tile.columns] for row in range(tile.rows)]
    height, width = (1, 1) if pool is None else (pool.rows, pool.columns)
    channel, row_stride, column_stride = layer.planes(kernel.output.strides)
    first = [
        _place(direction, name, size, stride)
        for direction, name, size, stride in (
            (part.rows, "r", height, row_stride),
            (part.columns, "c", width, column_stride),
        )
    ]
    code.add(f"{kernel.target.element} *to = y + o * {channel} + {first[0]} + {first[1]};")
    for i in range(tile.rows // height):
        for j in range(tile.columns // width):
            window = [name for row in grid[i * height : (i + 1) * height] for name in row[j * width : (j + 1) * width]]
            result = _pooled(kernel, layer, window)
            for function in layer.after:
                code.add(f"{result} = {function.expression(kernel, result)};")
            place = i * part.rows.step * row_stride + j * part.columns.step * column_stride
            code.add(f"to[{place}] = {result};")


def _place(direction: Direction, name: str, pool: int, stride: int) -> str:
    """The offset of the tile's first output in one direction."""
    place = name if pool == 1 else f"{name} / {pool}"
    return index([place], [direction.step * stride], direction.origin * stride)


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
