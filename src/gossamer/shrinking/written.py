"""Sizes written into the model: numbers in views that a smaller network no longer has."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, fx

from gossamer.shrinking.analysis import Analysis
from gossamer.shrinking.plans import Size
from gossamer.shrinking.shadow import Shadow, varying
from gossamer.shrinking.solve import Decision

__all__ = ["new_shape", "repeated_sizes", "resized", "written_sizes"]

aten = torch.ops.aten


def new_shape(labels: Tensor, decision: Decision) -> tuple[int, ...]:
    """The shape of a value when the dead units are gone."""
    shape = list(labels.shape)
    dims = varying(labels)
    if not dims:
        return tuple(shape)
    alive = decision.lives(labels[tuple(slice(None) if d in dims else 0 for d in range(labels.dim()))])
    rows = alive.sum(-1)
    shape[dims[-1]] = int(rows.max())
    for place, dim in enumerate(dims[:-1]):
        others = [p for p in range(len(dims)) if p != place]
        shape[dim] = int(alive.amax(others).sum())
    return tuple(shape)


def resized(run: Analysis, decision: Decision) -> Iterator[tuple[fx.Node, tuple[int, ...], tuple[int, ...]]]:
    """Values whose shape changes, with the shape before and after."""
    for node, shadow in run.shadows.items():
        if isinstance(shadow, Shadow) and node.op == "call_function":
            after = new_shape(shadow.labels, decision)
            if after != tuple(shadow.shape):
                yield node, tuple(shadow.shape), after


def written_sizes(run: Analysis, decision: Decision) -> list[Tensor]:
    """For each view or slice with a number that would have to change: the classes that it counts."""
    counted: list[Tensor] = []
    for node, before, after in resized(run, decision):
        literals = _literals(node) or set()
        if any(old != new and old in literals for old, new in zip(before, after, strict=True)):
            counted.append(run.shadow(node).labels)
    counted += [labels for node in run.shadows for labels in _sliced(run, node)]
    found: list[Tensor] = []
    for labels in counted:
        classes = torch.unique(decision.classes[labels])
        touched = not bool(decision.alive[classes].all())
        if touched and not any(torch.equal(classes, other) for other in found):
            found.append(classes)
    return found


def _sliced(run: Analysis, node: fx.Node) -> list[Tensor]:
    """The units that a slice with fixed bounds counts off."""
    if node.target is not aten.slice.Tensor:
        return []
    named = run.arguments(node)
    labels = run.shadow(named["self"]).labels
    dim = named["dim"] % labels.dim()
    if dim not in varying(labels):
        return []
    length = labels.size(dim)
    start, end = run.number(named["start"]) or 0, run.number(named["end"])
    end = length if end is None else end
    last = start if end >= length else end
    return [labels.narrow(dim, 0, last % length)] if last else []


def repeated_sizes(run: Analysis, decision: Decision) -> list[Size]:
    """Integer attributes of the user's modules that a view repeats (`num_heads`, `head_dim`), to change with it.

    A guess, which verification confirms: the attribute is on the module whose forward spells the size out, and has
    the same value. Where one value stands for two sizes, the name decides which is meant.
    """
    modules = dict(run.model.named_modules(remove_duplicate=False))
    changes: dict[str, dict[int, list[int]]] = {}
    for node, before, after in resized(run, decision):
        literals = _literals(node) or set()
        found = changes.setdefault(run.caller(node), {})
        for old, new in zip(before, after, strict=True):
            if old != new and old in literals and new not in found.setdefault(old, []):
                found[old].append(new)
    sizes = []
    for path, found in changes.items():
        for attribute, value in vars(modules.get(path, run.model)).items():
            if type(value) is int and not attribute.startswith("_") and found.get(value):
                options = found[value]
                after_ = options[-1] if _is_width(attribute) else options[0]
                sizes.append(Size(path, attribute, value, after_))
    return sizes


def _is_width(attribute: str) -> bool:
    """Whether a name speaks of the width of a head rather than of the number of heads."""
    return any(word in attribute for word in ("dim", "size", "width"))


def _literals(node: fx.Node) -> set[int] | None:
    """The sizes that an operation spells out."""
    place = _SIZES_AT.get(node.target)
    source = node
    if node.target is operator.getitem:
        source = node.all_input_nodes[0]
        place = _SIZES_AT.get(source.target)
    if place is None:
        return None
    sizes = source.args[place]
    listed = sizes if isinstance(sizes, list | tuple) else [sizes]
    return {size for size in listed if isinstance(size, int) and size > 1}


_SIZES_AT: dict[Any, int] = {
    aten.view.default: 1,
    aten.reshape.default: 1,
    aten.unflatten.int: 2,
    aten.expand.default: 1,
    aten.zeros.default: 0,
    aten.split.Tensor: 1,
    aten.split.sizes: 1,
    aten.split_with_sizes.default: 1,
}
"""Where an operation spells sizes out."""
