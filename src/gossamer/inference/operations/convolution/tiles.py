"""How many neighbouring outputs a kernel computes at once, in registers, and how the input channels are blocked."""

from __future__ import annotations

import math
from typing import NamedTuple

__all__ = ["Tile", "best_tile", "channel_blocks"]

# Per non-zero: loads of weight and offset and the loop, in units of one multiply-add.
_OVERHEAD = 2.5

# Of the first-level cache, for what one block of channels contributes to a tile.
_CACHE = 24 * 1024

# Below this many non-zeros of a channel in a block, partial sums cost more than the cache saves.
_FEWEST_TAPS = 8


class Tile(NamedTuple):
    """Rows and columns of outputs; in vectors of places, columns are vectors."""

    rows: int
    columns: int

    @property
    def sums(self) -> int:
        """Registers that it fills."""
        return self.rows * self.columns


def best_tile(rows: int, columns: int, most: int, pool_rows: int = 1, pool_columns: int = 1) -> Tile:
    """The tile of at most `most` sums that covers rows x columns at the least cost; whole pooling windows.

    The last tile of a row or column overlaps the one before it, so the cost counts whole tiles.
    """
    candidates = [
        Tile(r * pool_rows, c * pool_columns)
        for r in range(1, rows // pool_rows + 1)
        for c in range(1, columns // pool_columns + 1)
        if r * pool_rows * c * pool_columns <= most or r == c == 1
    ]

    def cost(tile: Tile) -> tuple[float, int]:
        count = math.ceil(rows / tile.rows) * math.ceil(columns / tile.columns)
        return count * (tile.sums + _OVERHEAD), abs(tile.rows - tile.columns)

    return min(candidates, key=cost)


def channel_blocks(channels: int, tile_bytes: int, taps_of_output: float) -> int:
    """Blocks of input channels, given what a tile reads of one channel."""
    wanted = math.ceil(channels * tile_bytes / _CACHE)
    worthwhile = max(1, int(taps_of_output / _FEWEST_TAPS))
    return max(1, min(wanted, worthwhile, channels))
