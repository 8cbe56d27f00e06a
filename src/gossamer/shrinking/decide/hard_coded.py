"""Sizes that are hard-coded in the user's forward: integers in views, splits and slices that count units.

`x.view(-1, 96)` breaks when the 96 units become 64. If the 96 came from an attribute of the module (`self.num_heads`),
changing the attribute repairs it (`attributes`). If it is a literal, the units that it counts have to stay
(`counted_classes`), unless the graph is rewritten.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator

import torch
from torch import Tensor, fx, nn

from gossamer.shrinking.analyse import AbstractValue, Analysis
from gossamer.shrinking.analyse.domain import varying_dims
from gossamer.shrinking.decide.liveness import Decision
from gossamer.shrinking.decide.plan import Size
from gossamer.shrinking.trace import Attribute, AttributeSize, arguments, caller_path, shape_of

__all__ = ["attributes", "changing_classes", "counted_classes"]

_MOST_ASSIGNMENTS = 10_000


def attributes(analysis: Analysis, decision: Decision) -> list[Size]:
    """Integer attributes of the user's modules that are sizes of unit dimensions, with their new values.

    Every tensor whose shape the forward computes from attributes (`analysis.attribute_uses`) is an equation: with the
    new values, the expression is the new size. An attribute changes only where the equations leave no other choice; one
    that is no size, or also the size of a dimension that stays, or a number that the forward computes with, keeps its
    value.
    """
    if next(_literals_that_change(analysis, decision), None) is None:
        return []  # the present values are a solution
    equations = _equations(analysis, decision)
    if all(int(size) == after for size, after in equations):
        return []
    equations += _fixed(analysis, decision)
    sizes = []
    for group in _connected(equations):
        for (path, name), after in (_solution(analysis, equations, group) or {}).items():
            before = _value(analysis, (path, name))
            if before != after:
                sizes.append(Size(path, name, before, after))
    return sizes


def _value(analysis: Analysis, attribute: Attribute) -> int:
    found: int = vars(analysis.modules[attribute[0]])[attribute[1]]
    return found


def _equations(analysis: Analysis, decision: Decision) -> list[tuple[AttributeSize, int]]:
    """Expressions in attributes with the sizes that they must have; a use that is not in the graph has no equation."""
    shapes: dict[tuple[str, tuple[int, ...], tuple[int, ...]], set[tuple[int, ...]]] = {}
    for node in analysis.literal_sizes:
        value = analysis.values.get(node)
        if isinstance(value, AbstractValue):
            key = caller_path(node), _source_shape(node), tuple(value.shape)
            shapes.setdefault(key, set()).add(decision.shape_after(value.labels))
    return [
        (use.size, after[use.dim])
        for use in analysis.attribute_uses
        for after in sorted(shapes.get((use.module, use.source, use.shape), ()))
    ]


def _fixed(analysis: Analysis, decision: Decision) -> list[tuple[AttributeSize, int]]:
    """Equations of attributes that keep their value: they are used as numbers, or meet a dimension that stays.

    What the forward does with a dimension of units is the same at every size of the inputs, so outputs tell.
    """
    met = {(use.module, use.shape): set(range(len(use.shape))) for use in analysis.number_uses if use.shape is not None}
    seen = set()
    for node, value in analysis.values.items():
        for tensor in (value, *(analysis.values.get(source) for source in node.all_input_nodes)):
            key = (caller_path(node), tuple(tensor.shape)) if isinstance(tensor, AbstractValue) else None
            if key in met:
                after = decision.shape_after(tensor.labels)
                met[key] &= {dim for dim, size in enumerate(after) if size != tensor.shape[dim]}
                seen.add(key)
    changing = {(key, dim) for key in seen for dim in met[key]}
    meets_units = [((use.module, use.shape), use.dim) in changing for use in analysis.number_uses]
    fixed = [use.attributes for use, units in zip(analysis.number_uses, meets_units, strict=True) if not units]
    names = frozenset[Attribute]().union(*fixed)
    return [
        (AttributeSize.of(_value(analysis, name), frozenset({name}), operator.itemgetter(name)), _value(analysis, name))
        for name in sorted(names)
    ]


def _source_shape(node: fx.Node) -> tuple[int, ...]:
    """The shape of the tensor that a view or a split is taken of."""
    node = node.all_input_nodes[0] if node.target is operator.getitem else node
    tensors = [n for n in node.all_input_nodes if isinstance(n.meta.get("val"), Tensor)]
    return shape_of(tensors[0]) if tensors else ()


def _connected(equations: list[tuple[AttributeSize, int]]) -> list[frozenset[Attribute]]:
    """The attributes, in groups that have no equation in common."""
    groups: list[frozenset[Attribute]] = []
    for size, _ in equations:
        joined = [group for group in groups if group & size.attributes]
        groups = [group for group in groups if group not in joined]
        groups.append(size.attributes.union(*joined))
    return groups


def _solution(
    analysis: Analysis, equations: list[tuple[AttributeSize, int]], group: frozenset[Attribute]
) -> dict[Attribute, int] | None:
    """The values of a group of attributes for which all equations hold, with as few changes as possible; or None."""
    own = [(size, after) for size, after in equations if size.attributes & group]
    names = sorted(group)
    before = [_value(analysis, name) for name in names]
    changed = {(int(size), after) for size, after in own}
    options = [list(dict.fromkeys([old, *(new for size, new in changed if size == old)])) for old in before]
    if math.prod(map(len, options)) > _MOST_ASSIGNMENTS:
        return None
    solutions = []
    for values in itertools.product(*options):
        assignment = dict(zip(names, values, strict=True))
        if _holds(own, assignment):
            changes = sum(new != old for new, old in zip(values, before, strict=True))
            solutions.append((changes, assignment))
    return min(solutions, key=lambda found: found[0], default=(0, None))[1]


def _holds(equations: list[tuple[AttributeSize, int]], assignment: dict[Attribute, int]) -> bool:
    try:
        return all(size.expression(assignment) == after for size, after in equations)
    except ZeroDivisionError:
        return False


def counted_classes(analysis: Analysis, decision: Decision, within: type[nn.Module] = nn.Module) -> list[Tensor]:
    """For each view, split or slice with an integer that would have to change, the classes that it counts.

    `within` restricts that to the forward of modules of one class.
    """
    own = [node for node in analysis.values if isinstance(analysis.caller(node), within)]
    views = dict.fromkeys(node for node, _, _ in _literals_that_change(analysis, decision))
    counted = [analysis.value(node).labels for node in own if node in views]
    counted += [labels for node in own if (labels := _sliced_off(analysis, node)) is not None]
    return changing_classes(decision, counted)


def changing_classes(decision: Decision, counted: list[Tensor]) -> list[Tensor]:
    """The distinct sets of classes of these labels, of those sets that lose any."""
    found: list[Tensor] = []
    for labels in counted:
        classes = torch.unique(decision.classes[labels])
        changes = not bool(decision.keeps(classes).all())
        if changes and not any(torch.equal(classes, other) for other in found):
            found.append(classes)
    return found


def _literals_that_change(analysis: Analysis, decision: Decision) -> Iterator[tuple[fx.Node, int, int]]:
    """Nodes that spell out the size of a dimension that changes, with the size before and after."""
    for node, value in analysis.values.items():
        literals = analysis.literal_sizes.get(node)
        if literals and isinstance(value, AbstractValue):
            for before, after in zip(value.shape, decision.shape_after(value.labels), strict=True):
                if before != after and before in literals:
                    yield node, before, after


def _sliced_off(analysis: Analysis, node: fx.Node) -> Tensor | None:
    """The labels in front of the bound that a slice along the unit dimension spells out."""
    if node.target is not torch.ops.aten.slice.Tensor:
        return None
    named = arguments(node)
    labels = analysis.value(named["self"]).labels
    dim = named["dim"] % labels.dim()
    if dim not in varying_dims(labels):
        return None
    length = labels.size(dim)
    start, end = analysis.numbers(named["start"]) or 0, analysis.numbers(named["end"])
    end = length if end is None else end
    last = start if end >= length else end
    return labels.narrow(dim, 0, last % length) if last else None
