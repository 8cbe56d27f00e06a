"""Functionalisation: replace in-place operations by their out-of-place counterparts.

An operation `y = f_(x)` overwrites `x` and everything that shares memory with it. If nothing reads those aliases after
the operation, it becomes `y = f(x)` and later uses of `x` become uses of `y`; this keeps layers as single operations.
If `x` is a part of a tensor (`base[:, 2:] += 1`), later uses of the tensor become uses of the tensor with `y` in that
place. Otherwise PyTorch's own functionalisation (`run_decompositions`) rewrites the program, which takes longer than
the export.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

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

_SCATTERS: dict[Any, OpOverload] = {
    torch.ops.aten.slice.Tensor: torch.ops.aten.slice_scatter.default,
    torch.ops.aten.select.int: torch.ops.aten.select_scatter.default,
}
"""Operations that take a part of a tensor, and those that return the tensor with another one in place of this part."""


class _Part(NamedTuple):
    """A part of a tensor: `scatter(base, part, *place, **named)` is the tensor with another part."""

    base: fx.Node
    scatter: OpOverload
    place: tuple[Any, ...]
    named: dict[str, Any]


def functionalize(program: ExportedProgram, mutations: Sequence[fx.Node]) -> ExportedProgram:
    """The same program without these in-place operations, which are all that it has."""
    if not all(_is_local(node, mutations) for node in mutations):
        decomposed: ExportedProgram = program.run_decompositions({})
        return decomposed
    parts: dict[fx.Node, _Part] = {}
    for node in mutations:
        _replace(node, parts)
    return program


def _out_of_place(op: OpOverload) -> OpOverload | None:
    packet = getattr(torch.ops.aten, op._schema.name.split("::")[1].removesuffix("_"), None)
    if packet is None or op._overloadname not in packet.overloads():
        return None
    found: OpOverload = getattr(packet, op._overloadname)
    return None if found._schema.is_mutable else found


def _is_local(mutation: fx.Node, mutations: Sequence[fx.Node]) -> bool:
    """Whether no older alias of the overwritten value is read after the mutation, and none is an input or a constant.

    The tensor that the overwritten value is a part of may be read.
    """
    if not isinstance(mutation.target, OpOverload) or _out_of_place(mutation.target) is None:
        return False
    target = mutation.args[0]
    if not isinstance(target, fx.Node):
        return False
    order = {node: place for place, node in enumerate(mutation.graph.nodes)}
    aliases = _aliases(target, mutation)
    if any(alias.op in ("placeholder", "get_attr") for alias in aliases):
        return False
    replaced = _versions(target, mutations)
    parts = [part for node in replaced if (part := _part(node)) is not None]
    replaced |= {part.base for part in parts}
    stale = [alias for alias in aliases - replaced if order[alias] < order[mutation]]
    return not any(order[user] > order[mutation] for alias in stale for user in alias.users)


def _versions(node: fx.Node, mutations: Sequence[fx.Node]) -> set[fx.Node]:
    """The value before and after each mutation: `y = f_(x)` is x itself."""
    while node in mutations and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    found, waiting = {node}, [node]
    while waiting:
        value = waiting.pop()
        new = {user for user in value.users if user in mutations and user.args[0] is value} - found
        found |= new
        waiting.extend(new)
    return found


def _part(node: fx.Node) -> _Part | None:
    """What a node takes from a tensor, if it takes a part of one."""
    base = node.args[0] if node.target in _SCATTERS else None
    return _Part(base, _SCATTERS[node.target], node.args[1:], node.kwargs) if isinstance(base, fx.Node) else None


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


def _replace(node: fx.Node, parts: dict[fx.Node, _Part]) -> None:
    """Make one operation out-of-place, and let later users of its input, or of what that is a part of, see its result.

    `parts` holds what the results of earlier mutations are parts of.
    """
    assert isinstance(node.target, OpOverload)
    target, out_of_place = node.args[0], _out_of_place(node.target)
    assert isinstance(target, fx.Node)
    assert out_of_place is not None
    node.target = out_of_place
    part = parts.get(target) or _part(target)
    _use_later(target, node, after=node)
    if part is not None:
        with node.graph.inserting_after(node):
            whole = node.graph.call_function(part.scatter, (part.base, node, *part.place), part.named)
        whole.meta = {**node.meta, "val": part.base.meta["val"]}
        _use_later(part.base, whole, after=whole)
        parts[node] = part._replace(base=whole)


def _use_later(old: fx.Node, new: fx.Node, *, after: fx.Node) -> None:
    """Let the users of a value that come after a node use another one."""
    later = False
    for user in list(old.graph.nodes):
        if later and old in user.all_input_nodes:
            user.replace_input_with(old, new)
        later = later or user is after
