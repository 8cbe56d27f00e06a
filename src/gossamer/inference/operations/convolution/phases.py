"""The phases of a convolution: which input position each tap reads for each output position.

In each direction, output position `origin + step i` (i = 0, 1, ..., count - 1) takes tap `taps[k]` from input position
`stride i + offsets[k]`; outside the input it reads zero. An ordinary convolution is one such phase. A transposed one of
stride s is s phases in each direction, one for each remainder of the output position modulo s.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from gossamer.inference.layout import Border

__all__ = ["Direction", "Phase", "border_of", "ordinary_direction", "phases", "transposed_directions"]


@dataclass(frozen=True)
class Direction:
    """A phase along one dimension."""

    taps: tuple[int, ...]
    offsets: tuple[int, ...]
    stride: int
    count: int
    origin: int = 0
    step: int = 1

    def before(self) -> int:
        """How far it reads before the input."""
        return max(0, -min(self.offsets, default=0))

    def after(self, size: int) -> int:
        """How far it reads behind an input of this size."""
        return max(0, (self.count - 1) * self.stride + max(self.offsets, default=0) - (size - 1))


@dataclass(frozen=True)
class Phase:
    """A phase of the output plane."""

    rows: Direction
    columns: Direction

    @property
    def positions(self) -> int:
        """Output positions."""
        return self.rows.count * self.columns.count


def ordinary_direction(outputs: int, kernel: int, stride: int, padding: int, dilation: int) -> Direction:
    """An ordinary convolution: output y takes tap k from input stride y - padding + dilation k."""
    return Direction(tuple(range(kernel)), tuple(dilation * k - padding for k in range(kernel)), stride, outputs)


def transposed_directions(outputs: int, kernel: int, stride: int, padding: int, dilation: int) -> list[Direction]:
    """A transposed convolution: output y takes tap k from input i where y = stride i - padding + dilation k."""
    found = []
    for phase in range(min(stride, outputs)):
        taps = tuple(k for k in range(kernel) if (phase + padding - k * dilation) % stride == 0)
        offsets = tuple((phase + padding - k * dilation) // stride for k in taps)
        found.append(Direction(taps, offsets, 1, -(-(outputs - phase) // stride), phase, stride))
    return found


def phases(rows: list[Direction], columns: list[Direction]) -> list[Phase]:
    """Every combination."""
    return [Phase(row, column) for row, column in product(rows, columns)]


def border_of(found: list[Phase], height: int, width: int) -> Border:
    """The zeros that the phases read around an input plane of this size."""
    return Border(
        max(phase.rows.before() for phase in found),
        max(phase.rows.after(height) for phase in found),
        max(phase.columns.before() for phase in found),
        max(phase.columns.after(width) for phase in found),
    )
