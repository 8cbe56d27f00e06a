"""Which attributes of the user's classes may be sizes: those that their code writes where a size of a tensor stands.

Shrinking sees that when it runs the forward (`gossamer.shrinking.trace.attributes`). A file comes without an input to
run it on, so loading reads the code instead: `self.heads` in `x.view(b, t, self.heads, -1)` is a size, and `self.top_k`
in `x.topk(self.top_k)` is none. An attribute that no code reads changes nothing, so it may be a size too.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from functools import cached_property
from types import CodeType, FunctionType

from torch import nn

__all__ = ["WrittenSizes"]

# Functions and methods of tensors whose arguments are sizes of their results.
_SHAPED = frozenset((
    "view", "reshape", "expand", "unflatten", "split", "split_with_sizes", "zeros", "ones", "empty",
    "rearrange",
))  # fmt: skip

# They run before a file is loaded, or only print.
_NOT_FORWARD = frozenset(("__init__", "reset_parameters", "extra_repr", "__repr__"))


class WrittenSizes:
    """The code of the user's classes in a model; it is read when the first attribute is asked for."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def may_include(self, name: str) -> bool:
        """Whether an attribute of this name is read as a size, or not at all."""
        reading = [function for function in self._functions if _mentions(function.__code__, name)]
        return not reading or any(name in _sizes(function) for function in reading)

    @cached_property
    def _functions(self) -> list[FunctionType]:
        """The methods of the classes, those that they inherit too, and the functions that they call by name."""
        kinds = {type(module) for module in self._model.modules() if _is_own(type(module))}
        bases = {base for kind in kinds for base in kind.__mro__ if base not in (nn.Module, object)}
        found = dict.fromkeys(method for base in bases for method in _methods(base))
        pending = list(found)
        while pending:
            function = pending.pop()
            called = (function.__globals__.get(name) for name in function.__code__.co_names)
            new = [each for each in called if isinstance(each, FunctionType) and _is_own(each) and each not in found]
            found |= dict.fromkeys(new)
            pending += new
        return list(found)


def _is_own(member: type | FunctionType) -> bool:
    return not (member.__module__ or "").startswith("torch.")


def _methods(kind: type) -> Iterator[FunctionType]:
    for name, member in vars(kind).items():
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        function = inspect.unwrap(function) if callable(function) else function
        if isinstance(function, FunctionType) and name not in _NOT_FORWARD:
            yield function


def _mentions(code: CodeType, name: str) -> bool:
    """Whether the code reads an attribute of this name, or has it as a text, for `getattr`."""
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return name in code.co_names or name in code.co_consts or any(_mentions(each, name) for each in inner)


def _sizes(function: FunctionType) -> set[str]:
    """The attributes that a function writes as sizes, there or by way of its variables; none without its source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return set()
    nodes = list(ast.walk(tree))
    pending = [argument for node in nodes if isinstance(node, ast.Call) for argument in _shape_arguments(node)]
    assigned = [pair for node in nodes if isinstance(node, ast.Assign) for pair in _assignments(node)]
    attributes: set[str] = set()
    variables: set[str] = set()
    while pending:
        operand = pending.pop()
        if isinstance(operand, ast.Attribute):
            attributes.add(operand.attr)
        elif isinstance(operand, ast.Name) and operand.id not in variables:
            variables.add(operand.id)
            pending += [value for name, value in assigned if name == operand.id]
        elif isinstance(operand, ast.Tuple | ast.List):
            pending += operand.elts
        elif isinstance(operand, ast.BinOp):
            pending += [operand.left, operand.right]
        elif isinstance(operand, ast.Starred):
            pending.append(operand.value)
    return attributes


def _shape_arguments(call: ast.Call) -> list[ast.expr]:
    called = call.func
    name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    return [*call.args, *(keyword.value for keyword in call.keywords)] if name in _SHAPED else []


def _assignments(node: ast.Assign) -> Iterator[tuple[str, ast.expr]]:
    """Names and what is assigned to them; the parts of a tuple one by one where it is written as one."""
    for target in node.targets:
        if isinstance(target, ast.Name):
            yield target.id, node.value
        elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            for name, value in zip(target.elts, node.value.elts, strict=False):
                if isinstance(name, ast.Name):
                    yield name.id, value
