"""The map of removable units: for each unit, the slices of parameters that leave with it.

`shrink` removes classes of labels (`Labels.classes`). This is the same map, made before anything is zero, for those who
act on units: regularizers penalise them, targets count them, reports show them. A class that is pinned is no unit.

Some classes can leave only in certain combinations: all heads of an attention keep the same width, all groups of a
convolution the same number of channels. Here they are *coupled*, so that every set of units can leave:

    heads, groups of a convolution      all of a head or group is one unit
    layers and directions of an LSTM    hidden unit j of all of them is one unit
    interleaved channels                channel j of all parts is one unit

Each parameter dimension along which units run either *holds* or *follows* them. What a unit holds is what its penalty
acts on: the weights that read it, and the biases, scales and shifts that produce it. If these are zero, nothing
reads the unit and it can leave, with all that follows it. The weights that produce it follow, because they already
belong to the units that they read, or because a normalisation leaves them without a scale (`scale_free`); weights that
read no unit (those of the first layer, or behind a LayerNorm) hold the unit that they produce. Thus every weight
belongs to one unit at most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, fx, nn

from gossamer.example import Example, call_with
from gossamer.layers import original_module
from gossamer.shrinking.analyse import NO_UNIT, SIZE_FROM_INPUT, Analysis, analyse
from gossamer.shrinking.analyse.domain import compress, varying_dims
from gossamer.shrinking.analyse.rules.layers import CONVOLUTIONS, owner
from gossamer.shrinking.analyse.rules.recurrent import RECURRENT
from gossamer.shrinking.analyse.rules.views import parameter_view
from gossamer.shrinking.decide.liveness import decide, label_tensors
from gossamer.shrinking.scale_free import ScaleFree, scale_free_weights
from gossamer.shrinking.trace import TracedModel, arguments, trace

__all__ = ["NONE", "UnitAxis", "UnitMap", "find_units"]

aten = torch.ops.aten

NONE = -1
"""The number at positions that belong to no unit."""

_BROADCAST = "it is broadcast over units that stay"
_INTERLEAVED = "they are interleaved"
_STAYS = "zeros alone do not free it"


@dataclass(frozen=True)
class UnitAxis:
    """Dimension `dim` of parameter `name`: index i belongs to unit `units[i]`, or to none where that is `NONE`.

    `holds`: the slices belong to their units' groups. Otherwise they only leave with them.
    """

    name: str
    dim: int
    units: Tensor
    holds: bool


@dataclass(frozen=True)
class UnitMap:
    """`count` units, numbered in the order of the parameters; the axes along which they run; weights without a scale.

    `reasons` maps parameter dimensions (`"name:dim"`) to the reasons why indices along them are no units, counted;
    `joined` those along which several indices are one unit to the reasons why they cannot leave one by one.
    """

    count: int
    axes: tuple[UnitAxis, ...]
    scale_free: tuple[ScaleFree, ...]
    reasons: Mapping[str, Mapping[str, int]]
    joined: Mapping[str, str]


def find_units(model: nn.Module, example: Example) -> UnitMap:
    """The units of a model that `shrink` could remove, whatever its weights are now.

    Args:
        model: any module that `torch.export` can trace.
        example: what the model is called with: a tensor, a tuple of arguments, or a dict of keyword arguments.

    Raises:
        GossamerError: If the model cannot be traced.
    """
    model = original_module(model)
    traced = trace(model, call_with(model, example))
    analysis = analyse(model, traced)
    joined = _couple(analysis)
    found = _Builder(analysis, {}, joined).build()
    for _ in range(3):  # what is penalised must be able to leave; what cannot is taken out, with all units beside it
        stuck = _stuck_classes(model, traced, found)
        if not stuck:
            break
        found = _Builder(analysis, {**found.taken_out, **stuck}, joined).build()
    return found.map


def _couple(analysis: Analysis) -> list[tuple[Tensor, str]]:
    """Unify classes that cannot leave one by one, until every set of classes leaves rectangles.

    Returns:
        Labels of which several are in one class now, with the reason.
    """
    joined: list[tuple[Tensor, str]] = []

    def unify(first: Tensor, second: Tensor, reason: str) -> None:
        joined.append((first, reason))
        analysis.labels.unify(first, second)

    for counts in analysis.equal_counts:
        if len(counts.matrices[0]) == 1:  # one row: its units leave one by one, what is broadcast over them does not
            for matrix in counts.matrices[1:] if len(counts.matrices) == 2 else ():
                if matrix.size(1) == 1:
                    analysis.labels.pin(matrix, _BROADCAST)
            continue
        for matrix in counts.matrices:
            if counts.rows_removable:
                unify(matrix, counts.matrices[0][:, :1], counts.reason)
            else:
                unify(matrix, matrix[:1], counts.reason)
    tensors = [labels for labels in label_tensors(analysis) if labels.dim() > 1]
    while True:
        classes = analysis.labels.classes()
        mixed = [labels for labels in tensors if len(varying_dims(compress(classes[labels]))) > 1]
        if not mixed:
            return joined
        for labels in mixed:
            rows = labels.flatten(0, -2)
            unify(rows, rows[:1], _INTERLEAVED)


@dataclass(frozen=True)
class _Found:
    """A map, the class of each of its units, and the classes that were taken out of it, with the reasons."""

    map: UnitMap
    roots: Tensor
    taken_out: dict[int, str]


class _Builder:
    """Numbers the classes that are not pinned, and sorts the axes along which they run."""

    def __init__(self, analysis: Analysis, taken_out: dict[int, str], joined: list[tuple[Tensor, str]]) -> None:
        self.analysis, self.taken_out, self.joined_labels = analysis, taken_out, joined
        self.classes = analysis.labels.classes()
        self.pinned: dict[int, str] = {NO_UNIT: SIZE_FROM_INPUT, **taken_out}
        for labels, reason in analysis.labels.pins:
            for root in torch.unique(self.classes[labels]).tolist():
                self.pinned.setdefault(root, reason)
        self.numbers: dict[int, int] = {}

    def build(self) -> _Found:
        scale_free = scale_free_weights(self.analysis)
        axes = tuple(self.axes(scale_free))
        found = UnitMap(len(self.numbers), axes, scale_free, self.reasons(), self.joined(axes))
        return _Found(found, torch.tensor(list(self.numbers), dtype=torch.long), self.taken_out)

    def axes(self, scale_free: tuple[ScaleFree, ...]) -> list[UnitAxis]:
        free = {weight.weight for weight in scale_free}
        without_scale = {weight.bias for weight in scale_free}
        found = []
        for name, tensor in list(self.analysis.traced.tensors.items())[::-1]:  # in the order of the model
            if not isinstance(tensor, nn.Parameter):
                continue
            roots = self.roots(name)
            units = {dim: self.number(along) for dim, along in roots.items()}
            units = {dim: along for dim, along in units.items() if bool((along != NONE).any())}
            holding = self.holding(name, units)
            if (name in free and holding == 0) or name in without_scale or _is_slope(self.analysis, name):
                holding = None
            found += [UnitAxis(name, dim, along, dim == holding) for dim, along in units.items()]
        return found

    def roots(self, name: str) -> dict[int, Tensor]:
        """The class at each index of each dimension of a parameter along which units run."""
        along = self.analysis.axis_labels.get(name, {})
        # Within the groups of a convolution (a matrix of labels) runs what also runs along its other dimension.
        found = {dim: self.classes[labels] for dim, labels in sorted(along.items()) if labels.dim() == 1}
        if name in self.analysis.element_labels and not along:
            roots = compress(self.classes[self.analysis.element_labels[name]])
            dims = varying_dims(roots)
            dim = dims[0] if dims else 0
            found[dim] = roots[tuple(slice(None) if d == dim else 0 for d in range(roots.dim()))].reshape(-1)
        return found

    def number(self, roots: Tensor) -> Tensor:
        return torch.tensor(
            [NONE if r in self.pinned else self.numbers.setdefault(r, len(self.numbers)) for r in roots.tolist()],
            dtype=torch.long,
        )

    def holding(self, name: str, units: Mapping[int, Tensor]) -> int | None:
        """The dimension along which a parameter belongs to units: the one that it reads, else the one it produces."""
        read = [dim for dim in _input_dims(self.analysis, name) if dim in units]
        return next(iter([*read, *units]), None)

    def reasons(self) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for layer in self.analysis.layers.values():
            for dim, roots in self.roots(layer.weight).items():
                why = (self.pinned[r] for r in roots.tolist() if r in self.pinned and r != NO_UNIT)
                if counted := Counter(reason for reason in why if reason != SIZE_FROM_INPUT):
                    found[f"{layer.weight}:{dim}"] = dict(counted)
        return found

    def joined(self, axes: tuple[UnitAxis, ...]) -> dict[str, str]:
        why: dict[int, str] = {}
        for labels, reason in self.joined_labels:
            for root in torch.unique(self.classes[labels]).tolist():
                why.setdefault(self.numbers.get(root, NONE), reason)
        layers = {layer.weight for layer in self.analysis.layers.values()}
        found = {}
        for axis in axes:
            units, counts = torch.unique(axis.units[axis.units != NONE], return_counts=True)
            reasons = dict.fromkeys(why[unit] for unit in units[counts > 1].tolist() if unit in why)
            if axis.name in layers and reasons:
                found[f"{axis.name}:{axis.dim}"] = f"{int(counts.sum())} are {len(units)} units, {'; '.join(reasons)}"
        return found


def _input_dims(analysis: Analysis, name: str) -> set[int]:
    """The dimensions of a weight along which its layers read."""
    nodes = {node.name: node for node in analysis.traced.graph.nodes}
    calls = [call for layer in analysis.layers.values() if layer.weight == name for call in layer.calls]
    return {_input_dim(analysis, nodes[call.node_name]) for call in calls}


def _input_dim(analysis: Analysis, node: fx.Node) -> int:
    if node.target in RECURRENT:
        return 1
    named = arguments(node)
    if node.target in CONVOLUTIONS:
        return 0 if "transpose" in str(node.target) or int(named["groups"]) > 1 else 1
    is_linear = node.target is aten.linear.default
    view = parameter_view(analysis, named["weight"] if is_linear else named.get("mat2", named.get("other")))
    assert view is not None  # it is the weight of a layer
    return view.dims[1 if is_linear else 0]


def _is_slope(analysis: Analysis, name: str) -> bool:
    """A slope of zero does not make a unit zero."""
    return isinstance(analysis.model.get_submodule(owner(name)), nn.PReLU)


def _stuck_classes(model: nn.Module, traced: TracedModel, found: _Found) -> dict[int, str]:
    """Units that stay when they hold only zeros, and the units beside them, with the reason; as classes.

    Half of the units, drawn at random, are set to zero in parameters that are not zero elsewhere, and liveness is
    decided for that.
    """
    generator = torch.Generator().manual_seed(0)
    zeroed = _half(found.map, generator)
    tensors = {
        name: nn.Parameter(_positive(tensor, generator), requires_grad=False)
        if isinstance(tensor, nn.Parameter) and tensor.is_floating_point()
        else tensor
        for name, tensor in traced.tensors.items()
    }
    for axis in found.map.axes:
        if axis.holds:
            index = torch.nonzero((axis.units != NONE) & zeroed[axis.units]).flatten()
            tensors[axis.name].index_fill_(axis.dim, index, 0)
    analysis = analyse(model, replace(traced, tensors=tensors))
    decision = decide(analysis)
    # The labels are those of the first analysis, whose classes are unions of these.
    stuck = torch.zeros(found.map.count, dtype=torch.bool)
    for axis in found.map.axes:
        labels = analysis.axis_labels.get(axis.name, {}).get(axis.dim)
        if labels is not None and labels.dim() == 1:
            units = axis.units[(axis.units != NONE) & decision.keeps(labels)]
            stuck[units] |= zeroed[units]
    for axis in found.map.axes:
        units = axis.units[axis.units != NONE]
        if bool(stuck[units].any()):
            stuck[units] = True
    return dict.fromkeys(found.roots[stuck].tolist(), _STAYS)


def _positive(tensor: Tensor, generator: torch.Generator) -> Tensor:
    return (torch.rand(tensor.shape, generator=generator) + 0.5).to(tensor.dtype)


def _half(units: UnitMap, generator: torch.Generator) -> Tensor:
    """Half of the units, but not all along any axis: every layer keeps one."""
    zeroed = torch.rand(units.count, generator=generator) < 0.5
    for axis in units.axes:
        along = axis.units[axis.units != NONE]
        if bool(zeroed[along].all()):
            zeroed[along[0]] = False
    return zeroed
