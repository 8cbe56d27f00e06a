"""A layer of one sample, in vectors of neighbouring output places.

The input is first copied into planes of its own, one for each channel and column of taps: plane (c, j) holds at row
and column what tap column j of channel c reads for that output column. Padding, stride and dilation are gone then, and
every read is of a whole vector at an aligned address, where shifted reads of the input itself would cross cache lines.
Planes that no non-zero reads are left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gossamer.inference.kernel import Array, Kernel
from gossamer.inference.layout import Frame
from gossamer.inference.operations.convolution.parts import Part
from gossamer.inference.operations.convolution.tables import is_dense, smallest_unsigned, table
from gossamer.inference.operations.convolution.tiles import Tile, best_tile, channel_blocks
from gossamer.inference.operations.convolution.vectors import finish_tile
from gossamer.inference.operations.convolution.walk import Walk, tile_loop

if TYPE_CHECKING:
    from gossamer.inference.operations.convolution.operation import Convolution

__all__ = ["Planes", "emit_by_places"]

# A vector that is not aligned costs up to two reads.
_UNALIGNED = 1.5


@dataclass(frozen=True)
class Planes:
    """The copies of the input, and how output places are numbered on them.

    Rows are as long as a multiple of the vector; or, where that would waste too much, `flat`: the rows lie behind each
    other, and the whole plane is one row.
    """

    layer: Convolution
    part: Part
    vector: int
    most: int  # sums in registers

    @cached_property
    def weight(self) -> Array:
        """The weights, [outputs, channels / groups, rows, columns]."""
        return self.layer.taps_of(self.part)

    @cached_property
    def is_flat(self) -> bool:
        """Whether the rows lie behind each other without gaps."""
        rows, columns = self.part.rows.count, self.part.columns.count
        vectors = math.ceil(rows * columns / self.vector)
        if self.layer.pooling is not None and vectors > self.most:
            return False  # a window may lie in any of them, so all would have to be there at once
        return rows * math.ceil(columns / self.vector) > _UNALIGNED * vectors

    @property
    def pitch(self) -> int:
        """Places from one row to the next."""
        columns = self.part.columns.count
        return columns if self.is_flat else math.ceil(columns / self.vector) * self.vector

    @property
    def grid(self) -> tuple[int, int]:
        """Rows of outputs, and vectors in each."""
        rows, columns = self.part.rows.count, self.part.columns.count
        return (1, math.ceil(rows * columns / self.vector)) if self.is_flat else (rows, self.pitch // self.vector)

    @property
    def rows(self) -> int:
        """Rows of a plane: those of the outputs, and as many more as the taps reach."""
        return self.part.rows.count + self._reach // self.part.rows.stride

    @property
    def size(self) -> int:
        """Places from one plane to the next."""
        return math.ceil(self.rows * self.pitch / self.vector) * self.vector

    @property
    def _reach(self) -> int:
        return max(self.part.rows.offsets) - min(self.part.rows.offsets)

    @cached_property
    def keys(self) -> npt.NDArray[np.int64]:
        """Channel, tap column and row phase (input row modulo stride) of each plane, in that order."""
        return np.argwhere(self._used)

    @cached_property
    def _phases(self) -> npt.NDArray[np.int64]:
        return (np.array(self.part.rows.offsets) - min(self.part.rows.offsets)) % self.part.rows.stride

    @cached_property
    def _used(self) -> npt.NDArray[np.bool_]:
        """Which (channel, tap column, row phase) a non-zero reads."""
        outputs, inputs, _, width = self.weight.shape
        used = np.zeros((inputs * self.layer.groups, width, self.part.rows.stride), dtype=bool)
        kept = np.ones_like(self.weight, dtype=bool) if is_dense(self.weight) else self.weight != 0
        any_output = kept.reshape(self.layer.groups, outputs // self.layer.groups, *kept.shape[1:]).any(1)
        for tap, phase in enumerate(self._phases):
            used[:, :, phase] |= any_output[:, :, tap].reshape(-1, width)
        return used

    def places(self, per_block: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Offset within its block, and block, of each channel and tap."""
        number = np.cumsum(self._used.reshape(-1)).reshape(self._used.shape) - 1
        plane = number[:, :, self._phases].transpose(0, 2, 1).clip(0)
        down = (np.array(self.part.rows.offsets) - min(self.part.rows.offsets)) // self.part.rows.stride
        return plane % per_block * self.size + down[None, :, None] * self.pitch, plane // per_block


def emit_by_places(layer: Convolution, kernel: Kernel) -> None:
    """Write the body of the function."""
    (part,) = layer.parts()
    planes = Planes(layer, part, kernel.target.vector, kernel.target.accumulators)
    source = _as_they_are(planes, kernel) or _copied(planes, kernel)
    rows, vectors = planes.grid
    tile = _tile(planes, planes.most)
    blocks = _blocks(planes, tile)
    per_block = math.ceil(max(len(planes.keys), 1) / blocks)
    places, block_of = planes.places(per_block)
    walk = Walk(
        kernel,
        table(planes.weight, layer.groups, places, block_of),
        layer.bias.numpy(),
        [i * planes.pitch + j * planes.vector for i in range(tile.rows) for j in range(tile.columns)],
        "V",
        lambda pointer: f"LOAD({pointer})",
        per_block * planes.size,
    )
    code = kernel.code
    with tile_loop(code, "r", rows, tile.rows), tile_loop(code, "c", vectors, tile.columns):
        code.add(f"const float *base = {source} + r * {planes.pitch} + c * {planes.vector};")
        walk.write(lambda: finish_tile(layer, kernel, planes, tile, walk.sums))


def _tile(planes: Planes, most: int) -> Tile:
    """The tile, with whole pooling windows."""
    rows, vectors = planes.grid
    pool = planes.layer.pooling
    if pool is None:
        return best_tile(rows, vectors, most)
    if planes.is_flat or planes.vector % pool.columns:
        whole = max(1, most // (pool.rows * vectors)) * pool.rows
        return Tile(1 if planes.is_flat else min(whole, rows), vectors)
    return best_tile(rows, vectors, most, pool.rows)


def _blocks(planes: Planes, tile: Tile) -> int:
    if planes.layer.groups > 1:
        return 1
    extra = planes.rows - planes.part.rows.count
    area = (tile.rows + extra) * tile.columns * planes.vector
    if planes.is_flat:
        area += extra * planes.pitch
    taps = np.count_nonzero(planes.weight) / len(planes.weight)
    return channel_blocks(len(planes.keys), 4 * area, taps)


def _as_they_are(planes: Planes, kernel: Kernel) -> str | None:
    """The input itself, if its planes already have the right form: a 1x1 convolution of whole vectors."""
    (x,), part = kernel.inputs, planes.part
    channel, row, column = planes.layer.planes(x.strides)
    places = part.places
    plain = part.rows.offsets == part.columns.offsets == (0,) and part.rows.stride == part.columns.stride == 1
    whole = places % planes.vector == 0 and planes.size == places == channel and row == part.columns.count
    everything = len(planes.keys) == x.shape[1]
    return x.name if plain and whole and column == 1 and everything else None


def _copied(planes: Planes, kernel: Kernel) -> str:
    """Write the copy, channel by channel; the pointer to the planes."""
    code, part, keys = kernel.code, planes.part, planes.keys
    target = kernel.scratch(max(len(keys), 1) * planes.size + planes.vector)
    if not len(keys):
        return target
    (x,) = kernel.inputs
    channel, row, column = planes.layer.planes(x.strides)
    used, firsts = np.unique(keys[:, 0], return_index=True)
    ends = kernel.constant(_unsigned(np.append(firsts[1:], len(keys))))
    padded = planes.layer.frame() != Frame()
    if padded:
        edge, width = _zeros(planes, kernel)
    code.add("int p = 0;")
    with code.loop("u", len(used)):
        number = "u" if len(used) == x.shape[1] else f"{kernel.constant(_unsigned(used))}[u]"
        code.add(f"const float *in = {x.name} + {number} * {channel};")
        if padded:
            _fill(planes, kernel, edge, width, (row, column))
            row, column = width, 1
            start = edge
        else:
            start = f"in + {min(part.rows.offsets) * row + min(part.columns.offsets) * column}"
        shifts = np.array(part.columns.offsets) - min(part.columns.offsets)
        shift = kernel.constant(_unsigned(shifts[keys[:, 1]] * column + keys[:, 2] * row))
        with code.block(f"for (; p < (int){ends}[u]; p++)"):
            code.add(f"const float *from = {start} + {shift}[p];", f"float *to = {target} + p * {planes.size};")
            rows: int | str = planes.rows
            if part.rows.stride > 1:
                rows = f"(int){kernel.constant(_unsigned(_rows_of(planes)))}[p]"
            with code.loop("m", rows):
                _copy_row(planes, kernel, f"to + m * {planes.pitch}", f"from + m * {part.rows.stride * row}", column)
    return target


def _rows_of(planes: Planes) -> npt.NDArray[np.int64]:
    """The rows of each plane that are read."""
    reach = max(planes.part.rows.offsets) - min(planes.part.rows.offsets)
    return planes.part.rows.count + (reach - planes.keys[:, 2]) // planes.part.rows.stride


def _copy_row(planes: Planes, kernel: Kernel, target: str, source: str, column: int) -> None:
    code, columns = kernel.code, planes.part.columns
    step = columns.stride * column
    if step == 1:
        code.add(f"memcpy({target}, {source}, {4 * columns.count});")
    else:
        with code.loop("c", columns.count):
            code.add(f"({target})[c] = ({source})[c * {step}];")
    for place in range(columns.count, planes.pitch):
        code.add(f"({target})[{place}] = 0.0f;")


def _zeros(planes: Planes, kernel: Kernel) -> tuple[str, int]:
    """A plane of zeros with room for one channel and what the taps read around it; its pointer and width."""
    part = planes.part
    height = (part.rows.count - 1) * part.rows.stride + _spread(part.rows.offsets) + 1
    width = (part.columns.count - 1) * part.columns.stride + _spread(part.columns.offsets) + 1
    name = kernel.scratch(height * width)
    kernel.code.add(f"memset({name}, 0, {4 * height * width});")
    return name, width


def _fill(planes: Planes, kernel: Kernel, edge: str, width: int, strides: tuple[int, int]) -> None:
    """Copy the part of the channel `in` that is read into the plane with zeros around it."""
    part, (rows, columns) = planes.part, planes.layer.plane
    top, left = -min(part.rows.offsets), -min(part.columns.offsets)
    height = (part.rows.count - 1) * part.rows.stride + _spread(part.rows.offsets) + 1
    first_row, last_row = max(0, -top), min(rows, height - top)
    first, last = max(0, -left), min(columns, width - left)
    code = kernel.code
    with code.block(f"for (int m = {first_row}; m < {last_row}; m++)"):
        target, source = f"{edge} + (m + {top}) * {width} + {first + left}", f"in + m * {strides[0]} + {first * strides[1]}"
        if strides[1] == 1:
            code.add(f"memcpy({target}, {source}, {4 * (last - first)});")
        else:
            with code.loop("c", last - first):
                code.add(f"({target})[c] = ({source})[c * {strides[1]}];")


def _spread(offsets: tuple[int, ...]) -> int:
    return max(offsets) - min(offsets)


def _unsigned(numbers: npt.NDArray[np.int64]) -> Array:
    return numbers.astype(smallest_unsigned(int(numbers.max()) + 1))
