"""Solve: which classes live, by a fixed point over reads and over the shapes that must stay regular.

Life starts at the pinned classes and spreads along reads, so it is the least set that explains itself: a loop of
units that only read each other is dead. Shapes then keep some of the dead in: every value must stay a full rectangle
of numbers. What such a filler computes matters to nobody, so it needs nobody, unless it is a constant that is read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.shrinking.analysis import Analysis
from gossamer.shrinking.labels import NEUTRAL
from gossamer.shrinking.reading import Product, Reads, Uniform
from gossamer.shrinking.shadow import Shadow, thin, varying

__all__ = ["Decision", "solve"]

_LAST = "at least one unit stays in every layer"


@dataclass(frozen=True)
class Decision:
    """For each label its class, whether it lives, and for each class that was held back the reason."""

    classes: Tensor
    alive: Tensor
    reasons: dict[int, str]

    def lives(self, labels: Tensor) -> Tensor:
        """Where the labels stay."""
        return self.alive[labels]


def solve(run: Analysis, held: Iterable[tuple[int, str]] = ()) -> Decision:
    """Decide about every class; `held` names classes that must stay, for reasons found after the analysis."""
    return _Life(run, held).decide()


class _Life:
    """The growing sets of classes that live, and of those that are kept (alive, or to fill a shape)."""

    def __init__(self, run: Analysis, held: Iterable[tuple[int, str]]) -> None:
        self.run = run
        self.classes = run.labels.classes()
        self.alive = torch.zeros(run.labels.count, dtype=torch.bool)
        self.alive[NEUTRAL] = True
        self.kept = self.alive.clone()
        self.reasons: dict[int, str] = {}
        self.reads = _all_reads(run)
        self.shapes = _all_values(run)
        for labels, reason in run.labels.pins:
            self.revive(labels, reason)
        for label, reason in held:
            self.revive(torch.tensor([label]), reason)

    def decide(self) -> Decision:
        while True:
            self.spread()
            before = int(self.kept.sum())
            self.regularise()
            if not self.wake_constants() and int(self.kept.sum()) == before:
                return Decision(self.classes, self.kept[self.classes], self.reasons)

    def stays(self, labels: Tensor) -> Tensor:
        return self.kept[self.classes[labels]]

    def lives(self, labels: Tensor) -> Tensor:
        return self.alive[self.classes[labels]]

    def revive(self, labels: Tensor, reason: str | None) -> bool:
        """Let the classes of these labels live; with a reason if reading is not the reason."""
        roots = torch.unique(self.classes[labels])
        roots = roots[~self.alive[roots]]
        self.alive[roots] = True
        self.keep(roots, reason)
        return bool(roots.numel())

    def keep(self, labels: Tensor, reason: str | None) -> None:
        """Let the classes of these labels stay, without asking for what they read."""
        roots = torch.unique(self.classes[labels])
        fresh = roots[~self.kept[roots]]
        self.kept[fresh] = True
        if reason is not None:
            for root in fresh.tolist():
                self.reasons.setdefault(root, reason)

    def wake_constants(self) -> bool:
        """A filler that is read (so it is a constant) has to stay that constant: it lives."""
        moved = False
        for reads in self.reads:
            waiting = self.stays(reads.inputs) & ~self.lives(reads.inputs)
            moved = self.revive(self.heard(reads, waiting), None) or moved
        return moved

    def spread(self) -> None:
        """Life goes from readers to what they read, until nothing changes."""
        moved = True
        while moved:
            moved = False
            for reads in reversed(self.reads):
                moved = self.revive(self.needed(reads), None) or moved

    def needed(self, reads: Reads) -> Tensor:
        return self.heard(reads, ~reads.spared & ~self.lives(reads.inputs))

    def heard(self, reads: Reads, waiting: Tensor) -> Tensor:
        """Those of the waiting inputs for which a living output has a non-zero weight."""
        found = [torch.empty(0, dtype=torch.long)]
        for group in torch.nonzero(waiting.any(1)).flatten().tolist():
            active = reads.nonzero[group][self.lives(reads.outputs[group])].any(0)
            found.append(reads.inputs[group][active & waiting[group]])
        return torch.cat(found)

    def regularise(self) -> None:
        for uniform in self.run.uniforms:
            self.equalise(uniform)
        for product in self.run.products:
            self.square(product)
        for labels in self.shapes:
            self.fill(labels)

    def equalise(self, uniform: Uniform) -> None:
        """Rows that live have equally many living units in each matrix, and at least one."""
        masks = [self.stays(matrix) for matrix in uniform.matrices]
        rows = torch.stack([mask.any(1) for mask in masks]).any(0)
        if not uniform.rows_may_go:
            rows = torch.ones_like(rows)
        for matrix in uniform.matrices:
            self.level(matrix, rows, uniform.reason)

    def level(self, matrix: Tensor, rows: Tensor, reason: str) -> None:
        """Keep dead units of the short rows in until all of these rows are equally long."""
        while bool(rows.any()):
            alive = self.stays(matrix)
            counts = alive.sum(1)
            target = max(1, int(counts[rows].max()))
            short = rows & (counts < target)
            if not bool(short.any()):
                return
            # one unit per short row and turn: reviving a class may lengthen other rows too
            chosen = _loneliest(~alive[short]).unsqueeze(1)
            self.keep(matrix[short].gather(1, chosen).flatten(), reason)

    def square(self, product: Product) -> None:
        alive = self.stays(product.labels)
        self.keep(product.labels[_hull(alive) & ~alive], product.reason)

    def fill(self, labels: Tensor) -> None:
        """A value keeps at least one unit, and survivors of equal number in each of its rows."""
        alive = self.stays(labels)
        if not bool(alive.any()):
            self.keep(labels.flatten()[:1], _LAST)
            alive = self.stays(labels)
        if labels.dim() > 1:
            rows = _hull(alive.any(-1)).flatten()
            self.level(labels.flatten(0, -2), rows, "survivors must fill a rectangle")


def _loneliest(dead: Tensor) -> Tensor:
    """In each row a dead unit of the shortest run of dead ones: long runs are heads that may go as a whole."""
    run = (~dead).long().cumsum(1)
    lengths = torch.zeros(len(dead), dead.size(1) + 1, dtype=torch.long).scatter_add_(1, run, dead.long())
    own = lengths.gather(1, run)
    return own.masked_fill(~dead, dead.size(1) + 1).argmin(1)


def _hull(mask: Tensor) -> Tensor:
    """The smallest product of per-dimension choices around a mask."""
    hull = torch.ones_like(mask)
    for dim in range(mask.dim()):
        others = [d for d in range(mask.dim()) if d != dim]
        line = mask.any(others[0], keepdim=True) if others else mask
        for other in others[1:]:
            line = line.any(other, keepdim=True)
        hull = hull & line
    return hull


def _all_reads(run: Analysis) -> list[Reads]:
    return run.reads + [reads for layer in run.layers.values() for reads in layer.reads()]


def _all_values(run: Analysis) -> list[Tensor]:
    """The distinct label tensors of all values and parameters, without the dimensions in which nothing changes."""
    found: dict[tuple[int, ...], Tensor] = {}
    tensors = [s.labels for shadow in run.shadows.values() for s in _flat(shadow)]
    tensors += [labels for axes in run.axes.values() for labels in axes.values()]
    for labels in [*tensors, *run.elements.values()]:
        if labels.numel() == 0:
            continue
        dims = varying(labels)
        slim = thin(labels)[0]
        slim = slim.reshape([slim.size(d) for d in dims] or [1])
        if bool((slim != NEUTRAL).any()):
            found[(*slim.shape, *slim.stride(), slim.data_ptr())] = slim
    return list(found.values())


def _flat(found: object) -> list[Shadow]:
    if isinstance(found, Shadow):
        return [found]
    return [s for item in found for s in _flat(item)] if isinstance(found, tuple | list) else []
