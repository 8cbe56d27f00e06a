"""A traced model as a program: each node by the rule of its operator, constants computed ahead of time."""

from __future__ import annotations

import inspect
import operator
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

from gossamer.errors import GossamerError
from gossamer.inference import operations
from gossamer.inference.fusion import fused
from gossamer.inference.layout import NO_BORDER, contiguous, placement
from gossamer.inference.operations.assemble import copied
from gossamer.inference.program import Constant, Input, Operation, Program, Result, Step, Value, root, typed, viewed
from gossamer.inference.registry import PROMOTES, RULES, TAKES_INTEGERS, Builder, Refusal
from gossamer.inference.tracing import Traced
from gossamer.shrinking.trace.export import arguments

__all__ = ["lower"]

_DTYPES = (torch.float32, torch.int64, torch.int32, torch.bool)

# Importing them has filled RULES.
assert operations.__all__


def lower(traced: Traced) -> Program:
    """The program of a traced model; an error that names the first operator that cannot be lowered."""
    lowering = _Lowering()
    for node in traced.graph.nodes:
        if node.op == "placeholder":
            lowering.placeholder(node, traced.tensors[node])
        elif node.op == "call_function":
            lowering.call(node)
    outputs = [lowering.output(node) for node in traced.outputs]
    shapes = tuple(tuple(node.meta["val"].shape) for node in traced.outputs)
    return fused(Program(tuple(lowering.inputs), tuple(lowering.steps), tuple(outputs), shapes))


class _Lowering(Builder):
    """The values of the nodes so far, and the steps that compute them."""

    def __init__(self) -> None:
        self.values: dict[fx.Node, Any] = {}
        self.inputs: list[Input] = []
        self.steps: list[Step] = []
        self.handed_out: set[Value] = set()
        self._copies: dict[Value, Value] = {}

    def add(self, operation: Operation) -> Result:
        result = Result(operation.shape)
        self.steps.append(Step(operation, result))
        return result

    def computed(self, value: Value) -> Value:
        if not isinstance(value, Constant):
            return value
        if value not in self._copies:
            self._copies[value] = self.add(copied(value))
        return self._copies[value]

    def reshaped(self, value: Value, shape: tuple[int, ...]) -> Value:
        if shape == value.shape:
            return value
        if isinstance(value, Constant):
            return Constant(shape, value.tensor.reshape(shape))
        alias = viewed(value, lambda tensor: tensor.view(shape))
        try:
            placement(alias, NO_BORDER)
        except RuntimeError:  # PyTorch: the strides do not allow it
            return viewed(self.add(copied(value)), lambda tensor: tensor.view(shape))
        return alias

    def placeholder(self, node: fx.Node, tensor: Tensor | None) -> None:
        """A parameter, a buffer, or an input."""
        if tensor is not None:
            self.values[node] = Constant(tuple(tensor.shape), tensor)
            return
        example = node.meta["val"]
        if not isinstance(example, Tensor):  # a number that is fixed by the example
            return
        if example.dtype not in _DTYPES:
            raise GossamerError(
                f"the input {node.name!r} is a {example.dtype}. Inputs are float32, int64 or int32 for indices, or "
                "bool for masks: convert model and example to float32 (model.float())."
            )
        value = Input(tuple(example.shape), dtype=example.dtype)
        self.inputs.append(value)
        self.values[node] = value

    def call(self, node: fx.Node) -> None:
        """An operator: folded if all it takes is constant, lowered by its rule otherwise."""
        args, kwargs = pytree.tree_map(self._value, (node.args, node.kwargs), is_leaf=_is_node)
        if node.target is operator.getitem:
            self.values[node] = args[0][args[1]]
            if self.values[node] is None:
                raise GossamerError(_complaint(node, f"its result number {args[1]} is not computed"))
            return
        leaves = pytree.tree_leaves((args, kwargs), is_leaf=_is_value)
        values = [leaf for leaf in leaves if isinstance(leaf, Value)]
        try:
            if all(isinstance(value, Constant) for value in values):
                self.values[node] = _folded(node, args, kwargs)
            else:
                self.values[node] = _checked_results(node, self._lowered(node, args, kwargs, values))
        except Refusal as refusal:
            raise GossamerError(_complaint(node, str(refusal))) from refusal

    def _value(self, leaf: Any) -> Any:
        return self.values[leaf] if isinstance(leaf, fx.Node) else leaf

    def _lowered(self, node: fx.Node, args: Any, kwargs: Any, values: list[Value]) -> Any:
        if not isinstance(node.target, OpOverload) or node.target.overloadpacket not in RULES:
            raise Refusal("there is no C for it")
        packet = node.target.overloadpacket
        promoted = packet in PROMOTES and node.meta["val"].dtype is torch.float32
        if not promoted and packet not in TAKES_INTEGERS and any(_is_discrete(value) for value in values):
            raise Refusal("it computes with integers or booleans; only float32 is computed")
        rule = RULES[packet]
        try:
            inspect.signature(rule).bind(self, *args, **kwargs)
        except TypeError as error:
            raise Refusal(f"this form of it is not known ({error})") from error
        return rule(self, *args, **kwargs)

    def output(self, node: fx.Node) -> Result:
        """The result that an output is read from: plain in memory, and of no other output."""
        value = self.values[node]
        dtype = node.meta["val"].dtype
        if dtype is not torch.float32:
            raise GossamerError(_complaint(node, f"it is an output, and a {dtype}; outputs are float32"))
        base = root(value)
        where = None if isinstance(value, Constant) else placement(value, NO_BORDER)
        plain = where is not None and where.offset == 0 and where.strides == contiguous(where.shape)
        whole = plain and torch.Size(base.shape).numel() == torch.Size(value.shape).numel()
        if not isinstance(base, Result) or not whole or base in self.handed_out:
            base = self.add(copied(value))
        self.handed_out.add(base)
        return base


def _folded(node: fx.Node, args: Any, kwargs: Any) -> Any:
    """The constant results of an operator on constants."""
    if _is_random(node):
        raise Refusal("it is random")
    assert callable(node.target)
    tensors = pytree.tree_map(
        lambda leaf: leaf.tensor if isinstance(leaf, Constant) else leaf, (args, kwargs), is_leaf=_is_value
    )
    result = node.target(*tensors[0], **tensors[1])
    return pytree.tree_map(lambda leaf: Constant(tuple(leaf.shape), leaf) if isinstance(leaf, Tensor) else leaf, result)


def _is_random(node: fx.Node) -> bool:
    if not isinstance(node.target, OpOverload) or torch.Tag.nondeterministic_seeded not in node.target.tags:
        return False
    named = arguments(node)  # dropout may be among them, and off
    return named.get("dropout_p", 1.0) > 0.0 and named.get("train") is not False


def _checked_results(node: fx.Node, results: Any) -> Any:
    """The results, as tensors of PyTorch's dtypes; None is one that is not computed. Shapes must be PyTorch's."""
    checked = []
    for own, right in zip(_as_tuple(results), _as_tuple(node.meta["val"]), strict=True):
        if own is not None:
            if right.dtype not in _DTYPES:
                raise Refusal(f"its result is a {right.dtype}; only float32 is computed")
            if own.shape != tuple(right.shape):
                raise Refusal(
                    f"this form of it is not known: its result has shape {tuple(right.shape)}, not {own.shape}"
                )
        checked.append(None if own is None else typed(own, right.dtype))
    return tuple(checked) if isinstance(results, tuple | list) else checked[0]


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def _is_discrete(value: Value) -> bool:
    """Whether it holds integers or booleans that depend on the input."""
    return not isinstance(value, Constant) and value.dtype is not torch.float32


def _is_value(leaf: Any) -> bool:
    return isinstance(leaf, Value)


def _is_node(leaf: Any) -> bool:
    return isinstance(leaf, fx.Node)


def _complaint(node: fx.Node, reason: str) -> str:
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path, kind = stack[-1] if stack else ("", "")
    name = kind if isinstance(kind, str) else kind.__name__
    where = f"in {path!r} ({name.rpartition('.')[2]})" if path else "in the model itself"
    return (
        f"the operator `{node.target}` {where} cannot be lowered to C: {reason}. "
        "Run the model as it is, or replace this operator by supported ones."
    )
