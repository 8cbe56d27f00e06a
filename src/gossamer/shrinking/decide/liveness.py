"""Liveness: which classes of labels are kept.

Least fixed point: pinned units are live; liveness propagates to everything a live unit reads. Units that only read each
other are therefore not live. An input whose constant is foldable does not become live by being read.

What is kept of a tensor must be a rectangle, so some units that are not live are kept to fill it, with a reason. A
filler reads nothing, since nothing uses its value, unless it is a constant that a live unit reads: then it has to keep
its value, and becomes live. Propagation and filling repeat until nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.shrinking.analyse import NO_UNIT, Analysis
from gossamer.shrinking.analyse.constraints import EqualCounts, Rectangle
from gossamer.shrinking.analyse.dependencies import Dependency
from gossamer.shrinking.analyse.domain import abstract_values_in, unexpand, varying_dims

__all__ = ["Decision", "decide", "label_tensors"]

_ONE_UNIT = "every layer keeps at least one unit"
_SAME_SHAPE = "a scale of zero closes it, but the scale stays"
_RECTANGLE = "kept units must form a rectangle"

_FEW_GROUPS = 4
"""In a few large groups it is faster to select the weights of live readers than to mask those of the others."""


@dataclass(frozen=True)
class Decision:
    """For each label its class and whether it is kept, and for each class kept though not live the reason."""

    classes: Tensor
    kept: Tensor
    reasons: dict[int, str]

    def keeps(self, labels: Tensor) -> Tensor:
        """Where the units of these labels are kept."""
        return self.kept[labels]

    def shape_after(self, labels: Tensor) -> tuple[int, ...]:
        """The shape of a value with these labels once units are removed."""
        shape = list(labels.shape)
        dims = varying_dims(labels)
        if not dims:
            return tuple(shape)
        kept = self.keeps(labels[tuple(slice(None) if d in dims else 0 for d in range(labels.dim()))])
        shape[dims[-1]] = int(kept.sum(-1).max())
        for place, dim in enumerate(dims[:-1]):
            others = [p for p in range(len(dims)) if p != place]
            shape[dim] = int(kept.amax(others).sum())
        return tuple(shape)


def decide(analysis: Analysis, pins: Iterable[tuple[int, str]] = ()) -> Decision:
    """Decide about every class; `pins` are classes that must stay in addition to those of the analysis."""
    return _FixedPoint(analysis, pins).solve()


class _FixedPoint:
    """Two growing sets of classes: `live`, and `kept` (live, or filling a shape)."""

    def __init__(self, analysis: Analysis, pins: Iterable[tuple[int, str]]) -> None:
        self.classes = analysis.labels.classes()
        self.live = torch.zeros(analysis.labels.count, dtype=torch.bool)
        self.live[NO_UNIT] = True
        self.kept = self.live.clone()
        self.reasons: dict[int, str] = {}
        layers = analysis.layers.values()
        self.dependencies = [*analysis.dependencies, *(d for layer in layers for d in layer.dependencies())]
        self.equal_counts, self.rectangles = analysis.equal_counts, analysis.rectangles
        self.multiples = analysis.multiples
        self.together = analysis.together
        self.tensors = label_tensors(analysis)
        for labels, reason in analysis.labels.pins:
            self.mark_live(labels, reason)
        by_reason: dict[str, list[int]] = {}
        for label, reason in pins:
            by_reason.setdefault(reason, []).append(label)
        for reason, pinned in by_reason.items():
            self.mark_live(torch.tensor(pinned), reason)

    def solve(self) -> Decision:
        while True:
            self.propagate()
            before = int(self.kept.sum())
            self.fill_shapes()
            if not self.mark_constant_fillers() and int(self.kept.sum()) == before:
                return Decision(self.classes, self.kept[self.classes], self.reasons)

    def is_kept(self, labels: Tensor) -> Tensor:
        return self.kept[self.classes[labels]]

    def is_live(self, labels: Tensor) -> Tensor:
        return self.live[self.classes[labels]]

    def mark_live(self, labels: Tensor, reason: str | None = None) -> bool:
        """Add the classes of these labels to both sets; returns whether any is new."""
        if not labels.numel():
            return False
        roots = torch.unique(self.classes[labels])
        roots = roots[~self.live[roots]]
        self.live[roots] = True
        self.keep(roots, reason)
        return bool(roots.numel())

    def keep(self, labels: Tensor, reason: str | None) -> None:
        """Keep the classes of these labels without making them live."""
        roots = torch.unique(self.classes[labels])
        new = roots[~self.kept[roots]]
        self.kept[new] = True
        if reason is not None:
            for root in new.tolist():
                self.reasons.setdefault(root, reason)

    def propagate(self) -> None:
        """From live readers to what they read, until nothing changes."""
        changed = True
        while changed:
            changed = False
            for dependency in reversed(self.dependencies):
                candidates = ~dependency.foldable & ~self.is_live(dependency.inputs)
                changed = self.mark_live(self.read_by_live(dependency, candidates)) or changed

    def mark_constant_fillers(self) -> bool:
        """A filler that a live unit reads is a constant, which it has to stay: it becomes live."""
        changed = False
        for dependency in self.dependencies:
            fillers = self.is_kept(dependency.inputs) & ~self.is_live(dependency.inputs)
            changed = self.mark_live(self.read_by_live(dependency, fillers)) or changed
        return changed

    def read_by_live(self, dependency: Dependency, candidates: Tensor) -> Tensor:
        """The candidates among the inputs that a live reader has a non-zero weight for."""
        groups = torch.nonzero(candidates.any(1)).flatten()
        if not len(groups):
            return groups
        live = self.is_live(dependency.readers[groups])
        if len(groups) > _FEW_GROUPS:
            is_read = (dependency.nonzero[groups] & live.unsqueeze(2)).any(1)
        else:
            is_read = torch.zeros(len(groups), dependency.inputs.size(1), dtype=torch.bool)
            for row, group in enumerate(groups.tolist()):
                is_read[row] = dependency.nonzero[group][live[row]].any(0)
        return dependency.inputs[groups][is_read & candidates[groups]]

    def fill_shapes(self) -> None:
        """Keep what the shape constraints need."""
        for pair in self.together:
            kept = self.is_kept(pair[0]) | self.is_kept(pair[1])
            for labels in pair:
                self.keep(labels[kept], _SAME_SHAPE)
        for counts in self.equal_counts:
            self.fill_equal_counts(counts)
        for rectangle in self.rectangles:
            self.fill_rectangle(rectangle)
        for multiple in self.multiples:
            removed = multiple.labels[~self.is_kept(multiple.labels)]
            missing = -(multiple.labels.numel() - removed.numel()) % multiple.factor
            self.keep(removed[:missing], multiple.reason)
        for labels in self.tensors:
            self.fill_tensor(labels)

    def fill_equal_counts(self, counts: EqualCounts) -> None:
        """All kept rows get equally many units in each matrix, and at least one."""
        masks = [self.is_kept(matrix) for matrix in counts.matrices]
        rows = torch.stack([mask.any(1) for mask in masks]).any(0)
        if not counts.rows_removable:
            rows = torch.ones_like(rows)
        for matrix in counts.matrices:
            self.fill_rows(matrix, rows, counts.reason)

    def fill_rows(self, matrix: Tensor, rows: Tensor, reason: str) -> None:
        """Keep further units of the shorter rows until all of these rows have equally many."""
        while bool(rows.any()):
            kept = self.is_kept(matrix)
            counts = kept.sum(1)
            target = max(1, int(counts[rows].max()))
            short = rows & (counts < target)
            if not bool(short.any()):
                return
            # One unit per row and turn, since keeping a class may lengthen other rows too.
            chosen = _in_shortest_run(~kept[short]).unsqueeze(1)
            self.keep(matrix[short].gather(1, chosen).flatten(), reason)

    def fill_rectangle(self, rectangle: Rectangle) -> None:
        kept = self.is_kept(rectangle.labels)
        self.keep(rectangle.labels[_hull(kept) & ~kept], rectangle.reason)

    def fill_tensor(self, labels: Tensor) -> None:
        """Any tensor keeps at least one unit, and equally many in each kept row."""
        kept = self.is_kept(labels)
        if not bool(kept.any()):
            self.keep(labels.flatten()[:1], _ONE_UNIT)
            kept = self.is_kept(labels)
        if labels.dim() > 1:
            rows = _hull(kept.any(-1)).flatten()
            self.fill_rows(labels.flatten(0, -2), rows, _RECTANGLE)


def _in_shortest_run(removed: Tensor) -> Tensor:
    """In each row the first index in its shortest run of removed units: a long run may be a head to remove whole."""
    run = (~removed).long().cumsum(1)
    lengths = torch.zeros(len(removed), removed.size(1) + 1, dtype=torch.long).scatter_add_(1, run, removed.long())
    own = lengths.gather(1, run)
    return own.masked_fill(~removed, removed.size(1) + 1).argmin(1)


def _hull(mask: Tensor) -> Tensor:
    """The smallest Cartesian product of per-dimension index sets that contains a mask."""
    hull = torch.ones_like(mask)
    for dim in range(mask.dim()):
        others = [d for d in range(mask.dim()) if d != dim]
        line = mask.any(others[0], keepdim=True) if others else mask
        for other in others[1:]:
            line = line.any(other, keepdim=True)
        hull = hull & line
    return hull


def label_tensors(analysis: Analysis) -> list[Tensor]:
    """The distinct label tensors of all values and parameters, restricted to the dimensions along which they vary."""
    found: dict[tuple[int, ...], Tensor] = {}
    values = [value.labels for result in analysis.values.values() for value in abstract_values_in(result)]
    for labels in [*values, *analysis.parameter_labels()]:
        if labels.numel() == 0:
            continue
        dims = varying_dims(labels)
        narrowed = unexpand(labels)[0]
        narrowed = narrowed.reshape([narrowed.size(d) for d in dims] or [1])
        if bool((narrowed != NO_UNIT).any()):
            found[(*narrowed.shape, *narrowed.stride(), narrowed.data_ptr())] = narrowed
    return list(found.values())
