"""Analysis: run the graph on shadows, operation by operation, and write down what was learnt.

Rules for single operations live in `rules`; each receives this object and the node, looks its inputs up, ties, pins
or reads labels, and returns the shadow of its result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._ops import OpOverload

from gossamer.shrinking.labels import Labels
from gossamer.shrinking.reading import Layer, Product, Reads, Uniform
from gossamer.shrinking.shadow import Shadow, settle, unknown
from gossamer.shrinking.trace import Traced

__all__ = ["Analysis", "ParameterView", "SizeNote"]


@dataclass(frozen=True)
class ParameterView:
    """Which element of which parameter stands where: for each dimension of the view, parameter dimension and index."""

    name: str
    dims: tuple[int, ...]
    index: tuple[Tensor, ...]


@dataclass(frozen=True)
class SizeNote:
    """An integer attribute of a module that repeats a number of units: survivors of `labels`, or rows of them."""

    module: str
    attribute: str
    labels: Tensor


class Analysis:
    """Everything that the shadow run learns: labels with ties and pins, reads, shapes to keep, sizes to adapt."""

    def __init__(
        self, model: nn.Module, traced: Traced, *, training: bool, rewrites_graph: bool, whole_heads: bool
    ) -> None:
        self.model = model
        self._modules: dict[str, nn.Module] = dict(model.named_modules(remove_duplicate=False))
        self.traced = traced
        self.training = training
        self.rewrites_graph = rewrites_graph
        self.whole_heads = whole_heads
        self.labels = Labels()
        self.shadows: dict[fx.Node, Any] = {}
        self.deferred: dict[fx.Node, Callable[[Analysis, fx.Node], Any]] = {}
        self.axes: dict[str, dict[int, Tensor]] = {}
        self.elements: dict[str, Tensor] = {}
        self.layers: dict[tuple[str, str | None, str], Layer] = {}
        self.reads: list[Reads] = []
        self.uniforms: list[Uniform] = []
        self.products: list[Product] = []
        self.notes: list[SizeNote] = []

    # -- inputs of a rule

    def arguments(self, node: fx.Node) -> dict[str, Any]:
        """The arguments of an ATen operation by their names in the schema, defaults filled in."""
        assert isinstance(node.target, OpOverload)
        named: dict[str, Any] = {}
        for place, argument in enumerate(node.target._schema.arguments):
            if place < len(node.args):
                named[argument.name] = node.args[place]
            else:
                named[argument.name] = node.kwargs.get(
                    argument.name, argument.default_value if argument.has_default_value() else None
                )
        return named

    def shadow(self, node: fx.Node) -> Shadow:
        """The shadow of a value; a parameter that is used as a plain value gets a label for each element."""
        found = self.result(node)
        assert isinstance(found, Shadow), f"{node} is not a tensor"
        return found

    def result(self, node: fx.Node) -> Any:
        """What a node gives, worked out now if it was put off: a shadow, a tuple of shadows or a number."""
        if node not in self.shadows and node in self.traced.states:
            self.shadows[node] = self._element_shadow(self.traced.states[node])
        if node not in self.shadows and node in self.deferred:
            self.shadows[node] = self.deferred[node](self, node)
        return self.shadows.get(node)

    def number(self, value: Any) -> Any:
        """Sizes and other numbers, with those that the graph computes replaced by what they are here."""
        return fx.map_arg(value, lambda node: self.shadows[node])

    def tensor(self, name: str) -> Tensor:
        """A parameter or buffer, by name."""
        return self.traced.tensors[name].detach().cpu()

    def state(self, node: Any) -> str | None:
        """The name of the parameter or buffer that a node stands for, if it does."""
        return self.traced.states.get(node) if isinstance(node, fx.Node) else None

    def value_of(self, node: Any) -> Tensor | None:
        """The tensor behind a node that is a parameter or buffer."""
        name = self.state(node)
        return None if name is None else self.tensor(name)

    def shape(self, node: fx.Node) -> tuple[int, ...]:
        """The shape of a value in this run."""
        return tuple(_plain_int(size) for size in node.meta["val"].shape)

    def owner(self, name: str) -> str:
        """The module that holds a parameter."""
        return name.rpartition(".")[0]

    def caller(self, node: fx.Node) -> str:
        """The module whose forward made this operation."""
        stack = node.meta.get("nn_module_stack") or {"": ("", None)}
        path = list(stack.values())[-1][0]
        return str(path).split("@")[0]

    def calling_module(self, node: fx.Node) -> nn.Module:
        """The module object behind `caller`."""
        return self._modules.get(self.caller(node), self.model)

    def trains(self, node: fx.Node) -> bool:
        """Whether the module that made this operation is training, and the analysis is to hold for that."""
        return self.training and bool(self.calling_module(node).training)

    # -- parameters

    def bind(self, view: ParameterView, at: int, labels: Tensor) -> None:
        """Dimension `at` of a parameter view carries these labels: tie them to the parameter's own."""
        dim, index = view.dims[at], view.index[at]
        own = self.axes.setdefault(view.name, {})
        if dim not in own:
            own[dim] = self.labels.fresh(self.traced.tensors[view.name].size(dim))
        self.labels.tie(own[dim][index], labels)

    def _element_shadow(self, name: str) -> Shadow:
        tensor = self.tensor(name)
        if tensor.dim() == 0:
            labels = torch.zeros((), dtype=torch.long)
        else:
            labels = self.elements.setdefault(name, self.labels.fresh(*tensor.shape))
        buffer_in_motion = self.training and not isinstance(self.traced.tensors[name], nn.Parameter)
        known = torch.tensor(not buffer_in_motion).expand(tensor.shape)
        return Shadow(labels, settle(tensor), known)

    # -- results of a rule

    def opaque(self, node: fx.Node, reason: str) -> Any:
        """Not understood: every unit that goes in stays, and what comes out is new to us."""
        for source in node.all_input_nodes:
            for shadow in _shadows_in(self.result(source)):
                self.labels.pin(shadow.labels, reason)
        return self.fresh_result(node)

    def opaque_output(self, node: fx.Node) -> None:
        """What the model returns is read by the world."""
        for source in node.all_input_nodes:
            for shadow in _shadows_in(self.result(source)):
                self.labels.pin(shadow.labels, "it is an output of the model")

    def finish(self) -> None:
        """A parameter that is used as a layer and as a plain value as well is not understood: it stays."""
        for name in self.axes.keys() & self.elements.keys():
            reason = f"{name} is used in two different ways"
            self.labels.pin(self.elements[name], reason)
            for labels in self.axes[name].values():
                self.labels.pin(labels, reason)
        for name, labels in self.elements.items():
            if labels.dim() > 1:
                self.products.append(Product(labels, f"{name} must stay rectangular"))

    def fresh_result(self, node: fx.Node) -> Any:
        """A result without units and without knowledge, shaped like the node's value."""
        return _neutral(node.meta["val"])

    def note(self, module: str, attribute: str, labels: Tensor) -> None:
        """A size attribute of a module follows the survivors of these labels (of their rows, if a matrix)."""
        self.notes.append(SizeNote(module, attribute, labels))


def _plain_int(size: Any) -> int:
    return size if isinstance(size, int) else int(size.node.hint)


def _neutral(value: Any) -> Any:
    if isinstance(value, Tensor):
        shape = tuple(_plain_int(size) for size in value.shape)
        return unknown(torch.zeros((), dtype=torch.long).expand(shape), value.dtype)
    if isinstance(value, tuple | list):
        return tuple(_neutral(item) for item in value)
    if isinstance(value, torch.SymInt):
        return _plain_int(value)
    return value


def _shadows_in(found: Any) -> list[Shadow]:
    if isinstance(found, Shadow):
        return [found]
    if isinstance(found, tuple | list):
        return [shadow for item in found for shadow in _shadows_in(item)]
    return []
