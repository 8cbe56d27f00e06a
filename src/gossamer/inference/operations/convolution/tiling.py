"""How a layer is tiled: outputs that are summed at once, in registers, and blocks of inputs that stay in the cache.

The cost of a tiling is estimated in units of one multiply-add of a 32-byte vector with an operand from the
first-level cache, about half a cycle.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Tile", "Tiling", "Work", "best_tiling", "read_cost", "tiles"]

_TAP = 2.5  # loads of weight and offset, and the loop
_OUTPUT = 25.0  # for each output channel of a tile: mostly a branch that was predicted wrongly
_COPIED_ROW = 4.0
_COPIED_VECTOR = 3.0
_FEWEST_TAPS = 6  # below, per output channel and block, partial sums cost more than the cache saves


@dataclass(frozen=True)
class Tile:
    """Rows and columns of outputs; in vectors of positions, columns are vectors."""

    rows: int
    columns: int

    @property
    def sums(self) -> int:
        """Registers that it fills."""
        return self.rows * self.columns


@dataclass(frozen=True)
class Work:
    """What there is to do, for one phase of a layer.

    Attributes:
        rows: Of outputs.
        columns: Of outputs, or vectors of them.
        outputs: Output channels.
        taps: Non-zeros of all output channels.
        planes: Input planes that they read.
        extra_rows: That a tile reads beyond its own.
        row_step: Input rows from one output row to the next.
        extra_columns: As `extra_rows`.
        column_step: As `row_step`.
        vector: Bytes of an element, or of a vector of positions.
        cache: Bytes of the first-level cache; 0: the inputs are not split into blocks.
        read: The cost of reading a vector.
        copied_vectors: Vectors in a row of a plane, if the rows that a tile reads are copied first.
        copied_rows: Rows that are copied for any tile; 0: its own and the extra ones.
    """

    rows: int
    columns: int
    outputs: int
    taps: int
    planes: int
    extra_rows: int
    row_step: int
    extra_columns: int
    column_step: int
    vector: int
    cache: int
    read: float
    copied_vectors: int = 0
    copied_rows: int = 0

    def blocks(self, tile: Tile) -> int:
        """Blocks of input planes; each takes at most five sixths of the cache."""
        if not self.cache:
            return 1
        rows = (tile.rows - 1) * self.row_step + self.extra_rows + 1
        columns = self.columns if self.copied_vectors else tile.columns
        columns = (columns - 1) * self.column_step + self.extra_columns + 1
        wanted = math.ceil(self.planes * rows * columns * self.vector / (self.cache * 5 / 6))
        worthwhile = int(self.taps / self.outputs / _FEWEST_TAPS)
        return max(1, min(wanted, worthwhile, self.planes))

    def cost(self, tile: Tile) -> float:
        """The estimate."""
        down, across = math.ceil(self.rows / tile.rows), math.ceil(self.columns / tile.columns)
        loop = self.taps * (tile.sums * self.read + _TAP)
        visits = self.outputs * (2 * tile.sums * self.read + _OUTPUT) * self.blocks(tile)
        rows = self.copied_rows or tile.rows + self.extra_rows
        copy = self.planes * rows * (_COPIED_VECTOR * self.copied_vectors + _COPIED_ROW) if self.copied_vectors else 0.0
        return down * (across * (loop + visits) + copy)


@dataclass(frozen=True)
class Tiling:
    """A tile, the blocks of input planes, and what they cost."""

    tile: Tile
    blocks: int
    cost: float


def read_cost(size: int, aligned: bool = True) -> float:
    """Of reading and using a vector of so many bytes: 64 take almost as long as twice 32."""
    if size > 32:
        return 1.8 if aligned else 3.6
    return 1.0 if aligned else 1.6


def tiles(rows: int, columns: int, most: int, pool_rows: int = 1, pool_columns: int = 1) -> Iterator[Tile]:
    """The tiles of at most `most` sums, of whole pooling windows; at least one."""
    for r in range(pool_rows, rows + 1, pool_rows):
        for c in range(pool_columns, columns + 1, pool_columns):
            if r * c <= most or (r, c) == (pool_rows, pool_columns):
                yield Tile(r, c)


def best_tiling(work: Work, candidates: Iterator[Tile]) -> Tiling:
    """The cheapest way; where two cost the same, the one with the squarer tile."""
    tile = min(candidates, key=lambda tile: (work.cost(tile), abs(tile.rows - tile.columns)))
    return Tiling(tile, work.blocks(tile), work.cost(tile))
