"""The facts of one analysis: abstract values, dependencies between units, and constraints on shapes.

A dependency says which units a unit reads. Everything else that needs a unit pins its label.

A rule receives the `Analysis` and a node, looks up the abstract values of the inputs, adds facts, and returns the
abstract value of the result.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, fx, nn

from gossamer.layers import LayerKind
from gossamer.shrinking.analyse.constraints import EqualCounts, Heads, Multiple, Rectangle, SizeAttribute
from gossamer.shrinking.analyse.dependencies import Dependency, LayerCall, ParameterView
from gossamer.shrinking.analyse.domain import (
    NO_UNIT,
    AbstractValue,
    Labels,
    abstract_values_in,
    compress,
    constant_value,
    no_units,
    unexpand,
    unknown_value,
    varying_dims,
)
from gossamer.shrinking.analyse.plain_values import labels_of_elements
from gossamer.shrinking.trace import NumberUse, SizeUse, TracedModel, caller_path, number_uses, size_hint, size_uses

__all__ = ["Analysis", "Layer"]

_ROUNDING = 1e-5

_Fact = TypeVar("_Fact")


@dataclass
class Layer:
    """A weight with all of its calls.

    `tap_sums` `(g, o, i)` is the weight summed over its taps: an input that is the constant c everywhere adds
    `tap_sums * c` to an output. `obstacle` says why that cannot be added to a bias; it is empty if it can.
    """

    weight: str
    bias: str | None
    nonzero: Tensor
    tap_sums: Tensor
    obstacle: str
    calls: list[LayerCall] = field(default_factory=list)

    def constants(self) -> Tensor:
        """The constant of each input `(g, i)`, valid where `constant_inputs` is true."""
        return self.calls[0].constants

    def constant_inputs(self) -> Tensor:
        """Inputs `(g, i)` that are the same constant in every call."""
        first = self.calls[0]
        constant = first.known
        for call in self.calls[1:]:
            constant = constant & call.known & (call.constants == first.constants)
        return constant

    def foldable(self) -> Tensor:
        """Inputs `(g, i)` that can be removed although they are read: constants that are zero or fold into a bias."""
        constant = self.constant_inputs()
        return constant & (self.constants() == 0) if self.obstacle else constant

    def dependencies(self) -> list[Dependency]:
        """One dependency per call."""
        foldable = self.foldable()
        return [Dependency(call.outputs, call.inputs, self.nonzero, foldable) for call in self.calls]


class Analysis:
    """Everything that the abstract interpretation of one traced model finds.

    `axis_labels[name][dim]` are the labels along a dimension of a parameter or buffer, `element_labels[name]` those of
    one that is used as a plain value. `literal_sizes` holds the sizes that an operation spells out as integers.
    `together` are pairs of labels of which both are kept or none, though one may be live without the other.
    `depends_on_form` if it might find other facts with the other value of `rewrites_graph`.
    """

    def __init__(
        self, model: nn.Module, traced: TracedModel, *, training: bool, dropout: bool, rewrites_graph: bool
    ) -> None:
        self.model = model
        self.modules: dict[str, nn.Module] = dict(model.named_modules(remove_duplicate=False))
        self.traced = traced
        self.training = training
        self.dropout = dropout
        self.rewrites_graph = rewrites_graph
        self.labels = Labels()
        self.values: dict[fx.Node, Any] = {}
        self._stored: dict[fx.Node, bool] = {}
        self.deferred: dict[fx.Node, Callable[[Analysis, fx.Node], Any]] = {}
        self.axis_labels: dict[str, dict[int, Tensor]] = {}
        self.element_labels: dict[str, Tensor] = {}
        self.layers: dict[tuple[str, str | None, str], Layer] = {}
        self.dependencies: list[Dependency] = []
        self.equal_counts: list[EqualCounts] = []
        self.multiples: list[Multiple] = []
        self.rectangles: list[Rectangle] = []
        self.heads: list[Heads] = []
        self.together: list[tuple[Tensor, Tensor]] = []
        self.graph_could_do_more = False
        self.depends_on_form = False
        self.size_attributes: list[SizeAttribute] = []
        self.literal_sizes: dict[fx.Node, frozenset[int]] = {}

    # Lookup.

    @functools.cached_property
    def attribute_uses(self) -> list[SizeUse]:
        """The sizes that the forward computes from integer attributes of its modules."""
        return size_uses(self.model, self.traced.call)

    @functools.cached_property
    def number_uses(self) -> list[NumberUse]:
        """The uses of integer attributes of modules as numbers, where the forward computes with them."""
        return number_uses(self.model, self.traced.call)

    def value(self, node: fx.Node) -> AbstractValue:
        """The abstract value of a tensor; a parameter that is used as a plain value has one label per element."""
        found = self.result(node)
        assert isinstance(found, AbstractValue), f"{node} is not a tensor"
        return found

    def result(self, node: fx.Node) -> Any:
        """The result of a node: an abstract value, a tuple of them, or a number. Deferred nodes are evaluated now."""
        if node not in self.values and node in self.traced.states:
            self.values[node] = self._elements(node)
        if node not in self.values and node in self.deferred:
            self.values[node] = self.deferred[node](self, node)
        return self.values.get(node)

    def numbers(self, arguments: Any) -> Any:
        """Arguments with the numbers that the graph computes (sizes, above all) in place of their nodes."""
        return fx.map_arg(arguments, lambda node: self.values[node])

    def tensor(self, name: str) -> Tensor:
        """A parameter or buffer by name, on the CPU."""
        return self.traced.tensors[name].detach().cpu()

    def state_name(self, node: Any) -> str | None:
        """The name of the parameter or buffer that a node stands for, or None."""
        return self.traced.states.get(node) if isinstance(node, fx.Node) else None

    def state_tensor(self, node: Any) -> Tensor | None:
        """The parameter or buffer that a node stands for, or None."""
        name = self.state_name(node)
        return None if name is None else self.tensor(name)

    def is_stored(self, node: fx.Node) -> bool:
        """Whether a tensor is computed from parameters, buffers and constants alone, not from the inputs."""
        if node not in self._stored:
            tensors = [n for n in node.all_input_nodes if isinstance(n.meta.get("val"), Tensor | tuple | list)]
            computed = node.op == "call_function" and all(self.is_stored(n) for n in tensors)
            given = node in self.traced.states or node in self.traced.constants
            self._stored[node] = computed or given or node.op == "get_attr"
        return self._stored[node]

    def caller(self, node: fx.Node) -> nn.Module:
        """The module whose forward executes this operation."""
        return self.modules.get(caller_path(node), self.model)

    def owners(self, name: str) -> list[str]:
        """The paths of the modules that hold a parameter or buffer: a tied weight has several, a stand-in none."""
        return list(self._owners.get(id(self.traced.tensors[name]), ()))

    @functools.cached_property
    def _owners(self) -> dict[int, dict[str, None]]:
        """By tensor, the paths of the modules that hold it, each once."""
        found: dict[int, dict[str, None]] = {}
        for path, module in self.modules.items():
            for tensor in (*module._parameters.values(), *module._buffers.values()):
                found.setdefault(id(tensor), {})[path] = None
        return found

    def in_training(self, node: fx.Node) -> bool:
        """Whether this operation runs in training mode, and the analysis has to hold for that."""
        return self.training and bool(self.caller(node).training)

    def drops(self, node: fx.Node) -> bool:
        """Whether this operation may set random elements to zero; not if their share is zero."""
        caller = self.caller(node)
        never = isinstance(caller, nn.modules.dropout._DropoutNd) and caller.p == 0
        return self.dropout and self.in_training(node) and not never

    # Facts.

    def bind(self, view: ParameterView, at: int, labels: Tensor) -> None:
        """Dimension `at` of a view of a parameter carries these labels."""
        dim, index = view.dims[at], view.index[at]
        own = self.axis_labels.setdefault(view.name, {})
        if dim not in own:
            own[dim] = self.labels.fresh(self.traced.tensors[view.name].size(dim))
        self.labels.unify(own[dim][index], labels)

    def depend(self, readers: Tensor, inputs: Tensor, foldable: Tensor | None = None) -> None:
        """All readers `(g, o)` read all inputs `(g, i)` of their row."""
        nonzero = torch.ones(readers.size(0), readers.size(1), inputs.size(1), dtype=torch.bool)
        foldable = torch.zeros_like(inputs, dtype=torch.bool) if foldable is None else foldable
        self.dependencies.append(Dependency(readers, inputs, nonzero, foldable))

    def close(self, labels: Tensor, closed: Tensor) -> Tensor:
        """Labels of a result that is constant where `closed`, whatever the operand with these labels is there.

        Its units at these positions are others than those of the operand: one may be live without the other. But the
        operand keeps its shape, so both are kept or removed together.
        """
        if not bool(closed.any()):
            return labels
        result = torch.where(closed & (labels != NO_UNIT), self.labels.fresh(*labels.shape), labels)
        self.together.append((labels[closed], result[closed]))
        return result

    def count_units(
        self,
        module: str,
        kind: LayerKind,
        *,
        inputs: Tensor | None = None,
        outputs: Tensor | None = None,
        parts: Tensor | None = None,
    ) -> None:
        """The size attributes of a layer of this kind count these units (rows, for a matrix of labels)."""
        for attribute, labels in ((kind.inputs, inputs), (kind.outputs, outputs), (kind.parts, parts)):
            if attribute is not None and labels is not None:
                self.size_attributes.append(SizeAttribute(module, attribute, labels))

    def pin_inputs(self, node: fx.Node, reason: str) -> None:
        """Every unit that a node reads stays."""
        for source in node.all_input_nodes:
            for value in abstract_values_in(self.result(source)):
                self.labels.pin(value.labels, reason)

    def opaque(self, node: fx.Node, reason: str) -> Any:
        """The result of an operation that is not analysed: its inputs are pinned, nothing is known about it."""
        self.pin_inputs(node, reason)
        return self.unknown_result(node)

    def unknown_result(self, node: fx.Node) -> Any:
        """A result of the node's shape without units and without known constants."""
        return _unknown(node.meta["val"])

    @property
    def options(self) -> dict[str, bool]:
        """The options of this analysis, for one of inputs of other sizes."""
        return {"training": self.training, "dropout": self.dropout, "rewrites_graph": self.rewrites_graph}

    @property
    def folds_constants(self) -> bool:
        """Whether a constant other than zero is known at the input of a layer."""
        calls = (call for layer in self.layers.values() for call in layer.calls)
        return any(bool((call.known & (call.constants != 0)).any()) for call in calls)

    def keep_common_constants(self, other: Analysis | None) -> bool:
        """Forget constants that another analysis, of inputs of other sizes, does not know or knows to be different.

        A sum over positions or a division by the batch size is constant at one size, and another constant at another.
        Of no analysis (None), nothing is known. Returns whether any constant was forgotten.
        """
        before = self._known_constants()
        for key, layer in self.layers.items():
            calls = other.layers[key].calls if other is not None and key in other.layers else []
            layer.calls = [_common(own, match) for own, match in _pairs(layer.calls, calls)]
        self.dependencies = [
            replace(own, foldable=own.foldable & match.foldable)
            if match is not None and own.foldable.shape == match.foldable.shape
            else replace(own, foldable=torch.zeros_like(own.foldable))
            for own, match in _pairs(self.dependencies, [] if other is None else other.dependencies)
        ]
        return self._known_constants() < before

    def _known_constants(self) -> int:
        known = sum(int(call.known.sum()) for layer in self.layers.values() for call in layer.calls)
        return known + sum(int(dependency.foldable.sum()) for dependency in self.dependencies)

    def finish(self) -> None:
        """Constrain parameters that are used as plain values; pin those that are used as layers as well."""
        for name in self.axis_labels.keys() & self.element_labels.keys():
            reason = f"{name} is used both as a weight and as a plain value"
            self.labels.pin(self.element_labels[name], reason)
            for labels in self.axis_labels[name].values():
                self.labels.pin(labels, reason)
        for name, labels in self.element_labels.items():
            if len(varying_dims(labels)) > 1:
                self.rectangles.append(Rectangle(labels, f"{name} must stay rectangular"))

    def parameter_labels(self) -> list[Tensor]:
        """The labels of all parameters and buffers, one tensor per dimension or per plain value."""
        along = [labels for dims in self.axis_labels.values() for labels in dims.values()]
        return [*along, *(unexpand(labels)[0] for labels in self.element_labels.values())]

    def _elements(self, node: fx.Node) -> AbstractValue:
        name = self.traced.states[node]
        tensor = self.tensor(name)
        if name not in self.element_labels:
            own = labels_of_elements(node, tensor, self.labels)
            if own is not None:
                self.element_labels[name] = own
        labels = self.element_labels.get(name, no_units(tensor.shape))
        is_updated = self.training and not isinstance(self.traced.tensors[name], nn.Parameter)
        return unknown_value(labels, tensor.dtype) if is_updated else constant_value(compress(tensor), labels)


def _pairs(own: list[_Fact], other: list[_Fact]) -> Iterator[tuple[_Fact, _Fact | None]]:
    """Facts of two analyses in order; None where the other one has no more."""
    return zip(own, [*other, *[None] * len(own)], strict=False)


def _common(call: LayerCall, other: LayerCall | None) -> LayerCall:
    if other is None or other.known.shape != call.known.shape:
        return replace(call, known=torch.zeros_like(call.known))
    # To rounding: the mean over more positions is the same constant.
    equal = torch.isclose(call.constants, other.constants, rtol=_ROUNDING, atol=0.0)
    return replace(call, known=call.known & other.known & equal)


def _unknown(value: Any) -> Any:
    if isinstance(value, Tensor):
        return unknown_value(no_units([size_hint(size) for size in value.shape]), value.dtype)
    if isinstance(value, tuple | list):
        return tuple(_unknown(item) for item in value)
    if isinstance(value, torch.SymInt):
        return size_hint(value)
    return value
