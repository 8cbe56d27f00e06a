"""Trace: the model as one ATen graph, without in-place operations and with its parameters by name.

The model is exported in evaluation mode. `torch.export` keeps layers, views and attention as single operations,
which is what the rules are written for.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram

from gossamer.errors import GossamerError
from gossamer.example import Call, evaluating
from gossamer.shrinking.functional import without_mutation

__all__ = ["Traced", "state_tensors", "trace"]


@dataclass(frozen=True)
class Traced:
    """The exported graph, with the tensors of the model that its placeholders stand for."""

    program: ExportedProgram
    graph: fx.Graph
    states: Mapping[fx.Node, str]
    tensors: Mapping[str, Tensor]


def trace(model: nn.Module, call: Call, *, dynamic_batch: bool = False) -> Traced:
    """Export the model; with `dynamic_batch` the first dimension of every input stays free."""
    with evaluating(model), warnings.catch_warnings(), _plain_attention():
        warnings.simplefilter("ignore")
        program = _export(model, call, dynamic_batch)
        program = without_mutation(program)
    tensors = state_tensors(model)
    canonical = {id(tensor): name for name, tensor in reversed(tensors.items())}
    signature = program.graph_signature
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    states = {
        node: canonical[id(tensors[names[node.name]])]
        for node in program.graph.nodes
        if node.op == "placeholder" and names.get(node.name) in tensors
    }
    return Traced(program, program.graph, states, {name: tensors[name] for name in canonical.values()})


def state_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name; a shared one under each of its names."""
    return {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }


def _export(model: nn.Module, call: Call, dynamic_batch: bool) -> ExportedProgram:
    shapes = None
    if dynamic_batch:
        shapes = _free_batch(call.kwargs) if call.kwargs else _free_batch(call.args)
    try:
        return torch.export.export(model, call.args, call.kwargs, dynamic_shapes=shapes, strict=False)
    except Exception as error:
        raise GossamerError(
            f"`model` ({type(model).__name__}) could not be traced by torch.export on this example: "
            f"{_first_line(error)}. Shrink needs a forward whose control flow does not depend on values; "
            "rewrite that place, or shrink the submodules that can be exported."
        ) from error


def _free_batch(value: Any) -> Any:
    if isinstance(value, Tensor):
        return {0: Dim.AUTO} if value.dim() else None
    if isinstance(value, tuple | list):
        return type(value)(_free_batch(v) for v in value)
    if isinstance(value, Mapping):
        return {k: _free_batch(v) for k, v in value.items()}
    return None


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


@contextmanager
def _plain_attention() -> Iterator[None]:
    """Without the fused encoder kernel of `nn.TransformerEncoder`, which hides the layers inside it."""
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(enabled)
