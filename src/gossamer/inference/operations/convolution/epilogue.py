"""What a kernel in vectors of positions does with its sums: activations, pooling, and the store into plain rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossamer.inference.kernel import Kernel
from gossamer.inference.operations.convolution.tiling import Tile
from gossamer.inference.source import index, literal
from gossamer.inference.targets import vector_prefix

if TYPE_CHECKING:
    from gossamer.inference.operations.convolution.inner_loop import InnerLoop
    from gossamer.inference.operations.convolution.operation import Convolution, Pooling
    from gossamer.inference.operations.convolution.positions import Planes

__all__ = ["finish_tile"]


def finish_tile(
    layer: Convolution, kernel: Kernel, planes: Planes, tile: Tile, loop: InnerLoop, start: tuple[str, str]
) -> None:
    """Write the code for the sums of output channel `o`, of the tile that starts at this row and vector."""
    prefix, sums = vector_prefix(planes.vector), loop.sums
    for function in layer.before:
        kernel.code.add(*(f"{name} = {function.expression(kernel, name, prefix=prefix)};" for name in sums))
    if layer.pooling is not None:
        _pool(layer, layer.pooling, kernel, planes, tile, loop, start)
        return
    for function in layer.after:
        kernel.code.add(*(f"{name} = {function.expression(kernel, name, prefix=prefix)};" for name in sums))
    _store(layer, kernel, planes, tile, loop, start)


def _store(
    layer: Convolution, kernel: Kernel, planes: Planes, tile: Tile, loop: InnerLoop, start: tuple[str, str]
) -> None:
    code, vector, prefix = kernel.code, planes.vector, vector_prefix(planes.vector)
    channel, row, column = layer.planes(kernel.output.strides)
    rows, columns = planes.phase.rows.count, planes.phase.columns.count
    length = rows * columns if planes.is_flat else columns
    code.add(f"float *to = y + {index([loop.output, *start], [channel, row, vector * column])};")
    for number, name in enumerate(loop.sums):
        i, j = divmod(number, tile.columns)
        target = f"to + {i * row + j * vector * column}"
        left = index([start[1]], [-vector], length - j * vector)  # positions from here to the end of the row
        if column != 1:
            code.add(f"{prefix}scatter({target}, {column}, {name}, {left});")
        elif length % vector == 0:
            code.add(f"{prefix}store({target}, {name});")
        elif tile.columns == planes.grid[1]:
            size = min(vector, length - j * vector)
            code.add(f"memcpy({target}, &{name}, {4 * size});")
        else:
            code.add(f"{prefix}store_some({target}, {name}, {left});")


def _pool(
    layer: Convolution,
    pooling: Pooling,
    kernel: Kernel,
    planes: Planes,
    tile: Tile,
    loop: InnerLoop,
    start: tuple[str, str],
) -> None:
    """Reduce rows in registers and columns in a small array; in a flat plane both in the array."""
    code, vector, prefix = kernel.code, planes.vector, vector_prefix(planes.vector)
    channel, row, column = layer.planes(kernel.output.strides)
    pitch = planes.pitch if planes.is_flat else tile.columns * vector
    if planes.is_flat:
        held, down, count = loop.sums, pooling.rows, planes.phase.rows.count // pooling.rows
    else:
        held, down, count = _reduced_rows(pooling, kernel, prefix, tile, loop.sums), 1, tile.rows // pooling.rows
    code.add(f"float window[{len(held) * vector}];")
    for number, name in enumerate(held):
        code.add(f"{prefix}store(window + {number * vector}, {name});")
    outputs = planes.phase.columns.count // pooling.columns
    width: int | str = outputs
    if tile.columns < planes.grid[1]:
        per_tile = tile.columns * vector // pooling.columns
        code.add(f"const int left = {index([start[1]], [-(vector // pooling.columns)], outputs)};")
        width = f"(left < {per_tile} ? left : {per_tile})"
    first = start[0] if start[0] == "0" else f"{start[0]} / {pooling.rows}"
    offset = index([loop.output, first, start[1]], [channel, row, vector // pooling.columns * column])
    code.add(f"float *to = y + {offset};")
    with code.loop("i", count), code.loop("j", width):
        code.add(f"const float *from = window + i * {down * pitch} + j * {pooling.columns};")
        reads = [f"from[{a * pitch + b}]" for a in range(down) for b in range(pooling.columns)]
        code.add(f"float s = {reads[0]};")
        for read in reads[1:]:
            code.add(f"s = {kernel.helper('maximum')}(s, {read});" if pooling.kind == "max" else f"s += {read};")
        if pooling.kind == "mean":
            code.add(f"s = s * {literal(1.0 / (pooling.rows * pooling.columns))};")
        for function in layer.after:
            code.add(f"s = {function.expression(kernel, 's')};")
        code.add(f"to[i * {row} + j * {column}] = s;")


def _reduced_rows(pooling: Pooling, kernel: Kernel, prefix: str, tile: Tile, sums: list[str]) -> list[str]:
    """The maximum or sum of each group of rows, in the first of them."""
    held = []
    for first in range(0, tile.rows, pooling.rows):
        for j in range(tile.columns):
            names = [sums[(first + a) * tile.columns + j] for a in range(pooling.rows)]
            for other in names[1:]:
                if pooling.kind == "max":
                    kernel.code.add(f"{names[0]} = {kernel.helper('maximum', prefix)}({names[0]}, {other});")
                else:
                    kernel.code.add(f"{names[0]} += {other};")
            held.append(names[0])
    return held
