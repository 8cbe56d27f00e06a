"""A weight in memory as [blocks][rows][groups][taps], the form in which the fused kernel handles every grouping.

A group is one (block, group) and holds all rows and taps. In memory order, with neighbouring axes of the same role
merged, the axes that index the groups and the axes inside a group alternate:

    Linear, groups of outputs           out | in                    groups, taps
    Linear, groups of inputs            out | in                    rows, groups
    Conv, groups of inputs              block | out | in | tap      blocks, rows, groups, taps
    LSTM, groups of outputs             gate | out | in             rows, groups, taps
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gossamer.layers import Groups, Layout

__all__ = ["Blocks", "blocks_of"]


@dataclass(frozen=True)
class Blocks:
    """The four sizes."""

    blocks: int
    rows: int
    groups: int
    taps: int


def blocks_of(weight: Tensor, layout: Layout, groups: Groups | None) -> Blocks | None:
    """The weight in the form of the kernel; None if its memory has gaps or its axes alternate more often."""
    if groups is None:
        dense = weight.is_contiguous() or _in_memory_order(list(weight.shape), list(weight.stride())) is not None
        return Blocks(1, 1, weight.numel(), 1) if dense else None
    try:
        seen = weight.view(layout.sizes)
    except RuntimeError:  # a memory format that splits an axis of the layout
        return None
    order = _in_memory_order(list(seen.shape), list(seen.stride()))
    if order is None:
        return None
    runs: list[tuple[bool, int]] = []  # (whether it indexes the groups, size)
    for axis in order:
        indexes = layout.indexes(axis, groups)
        size = seen.shape[axis]
        if runs and runs[-1][0] == indexes:
            runs[-1] = (indexes, runs[-1][1] * size)
        else:
            runs.append((indexes, size))
    return _from_runs(runs)


def _from_runs(runs: list[tuple[bool, int]]) -> Blocks | None:
    """Fill (blocks, rows, groups, taps) from the right: taps are inside a group, groups index, and so on."""
    sizes: list[int] = []
    for indexes in (False, True, False, True):
        sizes.append(runs.pop()[1] if runs and runs[-1][0] == indexes else 1)
    taps, groups, rows, blocks = sizes
    return None if runs else Blocks(blocks, rows, groups, taps)


def _in_memory_order(shape: list[int], stride: list[int]) -> list[int] | None:
    """The axes longer than 1 by descending stride; None if they leave gaps in memory or overlap."""
    order = sorted((axis for axis, size in enumerate(shape) if size != 1), key=lambda axis: -stride[axis])
    expected = 1
    for axis in reversed(order):
        if stride[axis] != expected:
            return None
        expected *= shape[axis]
    return order
