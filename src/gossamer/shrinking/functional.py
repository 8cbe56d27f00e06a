"""In-place operations rewritten as their plain twins, so that a value of the graph never changes.

`relu_` and `+=` are everywhere in public models. Where the value that they overwrite is seen by nobody else, the
rewrite is a renaming; where it is seen through a view or is a buffer, PyTorch's own functionalisation does it.
"""

from __future__ import annotations

import torch
from torch import fx
from torch._ops import OpOverload
from torch.export import ExportedProgram

__all__ = ["without_mutation"]

_MAY_ALIAS = {
    torch.ops.aten.reshape,
    torch.ops.aten.flatten,
    torch.ops.aten.unflatten,
    torch.ops.aten.contiguous,
    torch.ops.aten.dropout,
    torch.ops.aten.to,
    torch.ops.aten.chunk,
}


def without_mutation(program: ExportedProgram) -> ExportedProgram:
    """The same program without in-place operations and without operations that nobody uses."""
    mutations = [n for n in program.graph.nodes if _overwrites(n)]
    if mutations and not all(_is_private(program.graph, n) for n in mutations):
        program = program.run_decompositions({})
    else:
        for node in mutations:
            _make_plain(node)
    program.graph.eliminate_dead_code()
    program.graph_module.recompile()
    return program


def _overwrites(node: fx.Node) -> bool:
    return isinstance(node.target, OpOverload) and node.target._schema.is_mutable


def _plain_twin(op: OpOverload) -> OpOverload | None:
    packet = getattr(torch.ops.aten, op._schema.name.split("::")[1].removesuffix("_"), None)
    if packet is None or op._overloadname not in packet.overloads():
        return None
    twin: OpOverload = getattr(packet, op._overloadname)
    return None if twin._schema.is_mutable else twin


def _is_private(graph: fx.Graph, mutation: fx.Node) -> bool:
    """Whether nothing but the overwritten value itself can see that it changes."""
    if not isinstance(mutation.target, OpOverload) or _plain_twin(mutation.target) is None:
        return False
    target = mutation.args[0]
    if not isinstance(target, fx.Node):
        return False
    order = {node: place for place, node in enumerate(graph.nodes)}
    family = _aliases(target, mutation)
    if any(member.op in ("placeholder", "get_attr") for member in family):
        return False
    others = family - {target}
    return not any(order[user] > order[mutation] for other in others for user in other.users if user not in others)


def _aliases(node: fx.Node, mutation: fx.Node) -> set[fx.Node]:
    """Every value that may share memory with this one, other than through the result of the mutation."""
    found, waiting = {node}, [node]
    while waiting:
        current = waiting.pop()
        sources = current.all_input_nodes if _is_alias(current) else []
        views = [user for user in current.users if _is_alias(user)]
        fresh = {*sources, *views} - found - {mutation}
        found |= fresh
        waiting.extend(fresh)
    return found


def _is_alias(node: fx.Node) -> bool:
    if not isinstance(node.target, OpOverload):
        return node.op == "call_function"  # getitem of a tuple of views
    if node.target.overloadpacket in _MAY_ALIAS:
        return True
    return any(result.alias_info is not None for result in node.target._schema.returns)


def _make_plain(node: fx.Node) -> None:
    assert isinstance(node.target, OpOverload)
    target, twin = node.args[0], _plain_twin(node.target)
    assert isinstance(target, fx.Node)
    assert twin is not None
    node.target = twin
    later = False
    for user in list(target.graph.nodes):
        if later and target in user.all_input_nodes:
            user.replace_input_with(target, node)
        later = later or user is node
