"""Functionalisation: replace in-place operations by their out-of-place counterparts.

An operation `y = f_(x)` overwrites `x` and everything that shares memory with it. If nothing reads those aliases after
the operation, it becomes `y = f(x)` and later uses of `x` become uses of `y`; this keeps layers as single operations.
Otherwise PyTorch's own functionalisation (`run_decompositions`) rewrites the program.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import fx
from torch._ops import OpOverload
from torch.export import ExportedProgram

__all__ = ["functionalize"]

_MAY_ALIAS = {
    torch.ops.aten.reshape,
    torch.ops.aten.flatten,
    torch.ops.aten.unflatten,
    torch.ops.aten.contiguous,
    torch.ops.aten.dropout,
    torch.ops.aten.to,
    torch.ops.aten.chunk,
}
"""Operations that return a view or a copy; their schemas do not say which."""


def functionalize(program: ExportedProgram, mutations: Sequence[fx.Node]) -> ExportedProgram:
    """The same program without these in-place operations, which are all that it has."""
    if not all(_is_local(program.graph, node) for node in mutations):
        decomposed: ExportedProgram = program.run_decompositions({})
        return decomposed
    for node in mutations:
        _replace(node)
    return program


def _out_of_place(op: OpOverload) -> OpOverload | None:
    packet = getattr(torch.ops.aten, op._schema.name.split("::")[1].removesuffix("_"), None)
    if packet is None or op._overloadname not in packet.overloads():
        return None
    found: OpOverload = getattr(packet, op._overloadname)
    return None if found._schema.is_mutable else found


def _is_local(graph: fx.Graph, mutation: fx.Node) -> bool:
    """Whether no alias of the overwritten value is read after the mutation, and none is an input or a constant."""
    if not isinstance(mutation.target, OpOverload) or _out_of_place(mutation.target) is None:
        return False
    target = mutation.args[0]
    if not isinstance(target, fx.Node):
        return False
    order = {node: place for place, node in enumerate(graph.nodes)}
    aliases = _aliases(target, mutation)
    if any(alias.op in ("placeholder", "get_attr") for alias in aliases):
        return False
    others = aliases - {target}
    return not any(order[user] > order[mutation] for other in others for user in other.users if user not in others)


def _aliases(node: fx.Node, mutation: fx.Node) -> set[fx.Node]:
    """Every value that may share memory with this one, other than through the result of the mutation."""
    found, waiting = {node}, [node]
    while waiting:
        current = waiting.pop()
        views = [user for user in current.users if current in _aliased_inputs(user)]
        new = {*_aliased_inputs(current), *views} - found - {mutation}
        found |= new
        waiting.extend(new)
    return found


def _aliased_inputs(node: fx.Node) -> list[fx.Node]:
    """The inputs that the result of an operation may share memory with."""
    if not isinstance(node.target, OpOverload):
        parts = [n for n in node.all_input_nodes if not _returns_own_tensors(n)]  # getitem of a list of views
        return parts if node.op == "call_function" else []
    if node.target.overloadpacket in _MAY_ALIAS:
        return node.all_input_nodes[:1]
    schema = node.target._schema
    if all(result.alias_info is None for result in schema.returns):
        return []
    # Of `add_(x, y)` the result is x: it shares nothing with y.
    aliased = [place for place, argument in enumerate(schema.arguments) if argument.alias_info is not None]
    return [node.args[place] for place in aliased if isinstance(node.args[place], fx.Node)]  # type: ignore[misc]


def _returns_own_tensors(node: fx.Node) -> bool:
    """Whether an operation returns several tensors that share memory with nothing, such as `topk`."""
    if not isinstance(node.target, OpOverload):
        return False
    returns = node.target._schema.returns
    return len(returns) > 1 and all(result.alias_info is None for result in returns)


def _replace(node: fx.Node) -> None:
    """Make one operation out-of-place, and let later users of its input use its result."""
    assert isinstance(node.target, OpOverload)
    target, out_of_place = node.args[0], _out_of_place(node.target)
    assert isinstance(target, fx.Node)
    assert out_of_place is not None
    node.target = out_of_place
    later = False
    for user in list(target.graph.nodes):
        if later and target in user.all_input_nodes:
            user.replace_input_with(target, node)
        later = later or user is node
