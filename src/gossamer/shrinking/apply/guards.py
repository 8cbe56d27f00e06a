"""Guards: a graph computes what the model does only for inputs like those that it was exported for.

The exporter notes what it took for granted: sizes that are not symbolic, bounds of those that are, values of numbers
and flags. `guard` lets the graph check that at each call, and raise a `GuardError` where it does not hold.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree
from torch.utils._pytree import TreeSpec

from gossamer.errors import GossamerError
from gossamer.example import Call
from gossamer.shrinking.apply.definition import define_like
from gossamer.shrinking.trace import TracedModel

__all__ = ["GuardError", "accepted_inputs", "accepts", "guard", "refuse_size_one"]

_GUARDS = "_guards_fn"  # what the exporter calls its own


class GuardError(GossamerError):
    """A shrunk graph was called with inputs of other sizes, or other values, than it was exported for."""


@dataclass(frozen=True)
class _Literal:
    """An input that is no tensor: a number, a flag or None, which the exporter has built into the graph."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self.value) and bool(other == self.value)


@dataclass(frozen=True)
class _Like:
    """An input that is a tensor: which of its sizes are symbolic, and the kind of its elements.

    A forward may do one thing with a mask of flags, and another with a mask of numbers.
    """

    symbolic: tuple[bool, ...]
    kind: str

    @classmethod
    def of(cls, tensor: Tensor) -> _Like:
        """What this input, whose sizes may be symbolic, is an example of."""
        return cls(tuple(not isinstance(size, int) for size in tensor.shape), _kind(tensor))


class InputGuards(nn.Module):
    """Checks the inputs of a graph, flattened: literals, tensors, and the exporter's guards.

    A symbolic size is `least_size` at least.
    """

    def __init__(self, exported: nn.Module | None, expected: tuple[_Like | _Literal, ...], accepts: str) -> None:
        super().__init__()
        self.least_size = 1
        self._exported = exported
        self._expected = expected
        self._accepts = accepts

    def forward(self, *inputs: Any) -> None:
        """Raise a `GuardError` unless the graph was exported for such inputs."""
        for value, expected in zip(inputs, self._expected, strict=True):
            if isinstance(expected, _Literal) and expected != value:
                raise self._error(f"received {_short(value)} instead of {expected.value!r}")
            if isinstance(expected, _Like):
                self._check(value, expected)
        if self._exported is None:
            return
        try:
            self._exported(*inputs)
        except (AssertionError, RuntimeError, TypeError, IndexError) as error:
            raise self._error(str(error).replace("Guard failed: ", "it needs ")) from error

    def refuse(
        self, others: tuple[Any, ...], further: dict[str, Any], given: dict[str, Any], structure: TreeSpec
    ) -> None:
        """Raise a `GuardError` unless the arguments are those of the example, and hold as many tensors and numbers.

        `others` and `further` are those, by position and by keyword, that the example does not have.
        """
        if further:
            raise self._error(f"received {next(iter(further))!r}, which the example does not have")
        if others:
            raise self._error(f"received {_short(others[0])} for an argument that the example does not have")
        args, kwargs = structure.children()
        for (name, value), expected in zip(given.items(), (*args.children(), *kwargs.children()), strict=True):
            if problem := _other_structure(name, value, expected):
                raise self._error(problem)

    def _check(self, value: Any, expected: _Like) -> None:
        if not isinstance(value, Tensor):
            raise self._error(f"received {_short(value)} instead of a tensor")
        sizes = [n for n, is_symbolic in zip(value.shape, expected.symbolic, strict=False) if is_symbolic]
        if value.dim() != len(expected.symbolic) or min(sizes, default=self.least_size) < self.least_size:
            raise self._error(f"received {_short(value)}")
        if _kind(value) != expected.kind:
            raise self._error(f"received one with {_kind(value)} elements instead of {expected.kind} ones")

    def _error(self, problem: str) -> GuardError:
        return GuardError(
            f"this graph takes {self._accepts}; {problem}. Shrink again with an example like this input, or with "
            "form='module'."
        )


def _kind(tensor: Tensor) -> str:
    if tensor.dtype is torch.bool:
        return "boolean"
    return "complex" if tensor.is_complex() else "floating-point" if tensor.is_floating_point() else "integer"


def _other_structure(name: str, value: Any, expected: TreeSpec) -> str | None:
    """How an argument differs in structure from that of the example; None if it does not.

    A list may take the place of a tuple, and any mapping that of a dictionary.
    """
    if value is ...:
        return f"received no {name!r}, which the example has"
    if expected.is_leaf():
        return None
    keys: Sequence[Any]
    if expected.type in (dict, OrderedDict, defaultdict):
        keys = expected.context[1] if expected.type is defaultdict else expected.context
        if not isinstance(value, Mapping) or value.keys() != set(keys):
            return f"received {_outline(value)} for {name!r} instead of one with the keys {keys}"
    elif expected.type in (list, tuple):
        keys = range(expected.num_children)
        if not isinstance(value, list | tuple) or len(value) != len(keys):
            return f"received {_outline(value)} for {name!r} instead of one with {len(keys)} elements"
    else:
        found = pytree.tree_structure(value)
        return None if found == expected else f"received {_outline(value)} for {name!r} instead of {expected}"
    children = zip(keys, expected.children(), strict=True)
    inside = (_other_structure(f"{name}[{key!r}]", value[key], each) for key, each in children)
    return next((problem for problem in inside if problem), None)


def _outline(value: Any) -> str:
    """The kind and the length of a container."""
    if isinstance(value, Mapping):
        return f"a {type(value).__name__} with the keys {[*value]}"
    return f"a {type(value).__name__} of {len(value)}" if isinstance(value, list | tuple) else _short(value)


def _short(value: Any) -> str:
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"{value!r:.80}"


def guard(module: fx.GraphModule, model: nn.Module, traced: TracedModel) -> None:
    """Let the graph of a model check its inputs, and take them at the places that they have in the model's forward."""
    values = [node.meta.get("val") for node in traced.inputs]
    expected = tuple(_Like.of(value) if isinstance(value, Tensor) else _Literal(value) for value in values)
    exported = getattr(module, _GUARDS, None)
    if exported is None:
        inputs = module.graph.find_nodes(op="placeholder")
        with module.graph.inserting_after(inputs[-1]):
            module.graph.call_module(_GUARDS, tuple(inputs))
    guards = InputGuards(exported, expected, accepted_inputs(traced.inputs))
    guards._is_impure = True  # type: ignore[assignment]  # nothing reads what it returns
    module.add_module(_GUARDS, guards)
    define_like(model, traced.call, module.graph, _GUARDS)


def refuse_size_one(module: nn.Module) -> None:
    """Let a graph refuse symbolic sizes of one: the exporter takes them to be at least two."""
    guards = module.get_submodule(_GUARDS)
    assert isinstance(guards, InputGuards)
    guards.least_size = 2


def accepts(traced: TracedModel, call: Call) -> bool:
    """Whether an exported program may be called like this: one with symbolic sizes may have guards on them."""
    try:
        if traced.guards is not None:
            traced.guards(*pytree.tree_leaves((call.args, call.kwargs)))
    except Exception:
        return False
    return True


def accepted_inputs(placeholders: list[fx.Node]) -> str:
    """The inputs of a graph in words: `x of shape (any, 5, 4)`."""
    words = []
    for node in placeholders:
        value = node.meta.get("val")
        if isinstance(value, Tensor):
            sizes = ", ".join(str(size) if isinstance(size, int) else "any" for size in value.shape)
            words.append(f"`{node.name}` of shape ({sizes}{',' if value.dim() == 1 else ''})")
        else:
            words.append(f"`{node.name}` = {value!r}")
    return ", ".join(words)
