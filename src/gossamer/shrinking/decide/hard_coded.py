"""Sizes that are hard-coded in the user's forward: integers in views, splits and slices that count units.

`x.view(-1, 96)` breaks when the 96 units become 64. If the 96 came from an attribute of the module (`self.num_heads`),
changing the attribute repairs it (`attributes`). If it is a literal, the units that it counts have to stay
(`counted_classes`), unless the graph is rewritten.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, fx, nn

from gossamer.shrinking.analyse import AbstractValue, Analysis
from gossamer.shrinking.analyse.domain import varying_dims
from gossamer.shrinking.decide.liveness import Decision
from gossamer.shrinking.decide.plan import Size
from gossamer.shrinking.trace import arguments, caller_path

__all__ = ["attributes", "changing_classes", "counted_classes"]


def attributes(analysis: Analysis, decision: Decision) -> list[Size]:
    """Integer attributes of the user's modules that a view repeats (`num_heads`, `head_dim`), with their new values.

    This is a guess that verification confirms: the attribute belongs to the module whose forward spells out the size,
    and has its value. Where one value stands for two sizes, the attribute's name decides which one it is.
    """
    changes: dict[str, dict[int, list[int]]] = {}
    for node, before, after in _literals_that_change(analysis, decision):
        options = changes.setdefault(caller_path(node), {}).setdefault(before, [])
        if after not in options:
            options.append(after)
    sizes = []
    for path, found in changes.items():
        for attribute, value in vars(analysis.modules.get(path, analysis.model)).items():
            if type(value) is int and not attribute.startswith("_") and value in found:
                after = found[value][-1] if _is_width(attribute) else found[value][0]
                sizes.append(Size(path, attribute, value, after))
    return sizes


def _is_width(attribute: str) -> bool:
    """Whether an attribute is named after the width of a head rather than after the number of heads."""
    return any(word in attribute for word in ("dim", "size", "width"))


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
