"""A model and an example as one ATen graph for a batch of one, without in-place operations.

A sample is a batch of one: what the model computes for it is all that the lowered network computes. Whether the model
treats the samples of a larger batch apart is checked afterwards, by running it (`gossamer.inference.verification`).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from gossamer.errors import GossamerError
from gossamer.example import Call, evaluating
from gossamer.shrinking.trace.export import first_line, is_mutation, quick_export, unfused_attention

__all__ = ["TENSOR", "Traced", "first_sample", "trace"]

# Stands for a tensor among the leaves of a nested structure; None may be a leaf itself.
TENSOR = object()


@dataclass(frozen=True)
class Traced:
    """An exported model.

    Attributes:
        graph: The operators.
        tensors: What is behind each placeholder; None for an input.
        outputs: The nodes whose tensors are returned.
        results: What is returned, flattened; `TENSOR` for a tensor.
        structure: How it is nested.
    """

    graph: fx.Graph
    tensors: Mapping[fx.Node, Tensor | None]
    outputs: tuple[fx.Node, ...]
    results: tuple[Any, ...]
    structure: pytree.TreeSpec


def first_sample(call: Call) -> Call:
    """The call with the first sample of the batch only; an error where the inputs disagree about the batch."""
    tensors = call.tensors()
    for tensor in tensors:
        if tensor.dim() == 0 or tensor.shape[0] != tensors[0].shape[:1].numel() or tensor.shape[0] == 0:
            raise GossamerError(
                f"`example` has tensors of the shapes {[tuple(t.shape) for t in tensors]}. The first dimension of each "
                "has to be the batch: of the same size, and not empty."
            )
    args, kwargs = pytree.tree_map(_first, (call.args, call.kwargs))
    return Call(args, kwargs)


def _first(leaf: Any) -> Any:
    return leaf[:1].clone() if isinstance(leaf, Tensor) else leaf  # torch.export takes much longer for a view


def trace(model: nn.Module, sample: Call) -> Traced:
    """Export `model` in evaluation mode on one sample."""
    with evaluating(model), warnings.catch_warnings(), unfused_attention(), quick_export():
        warnings.simplefilter("ignore")
        try:
            program = torch.export.export(model, sample.args, sample.kwargs, strict=False)
            if any(is_mutation(node) for node in program.graph.nodes):
                program = program.run_decompositions({})
        except Exception as error:
            raise GossamerError(
                f"`{type(model).__name__}` could not be traced by torch.export on one sample of the example: "
                f"{first_line(error)}. Only models whose control flow does not depend on values can be lowered; "
                "rewrite that part, or lower the submodules that can be exported."
            ) from error
    for node in list(program.graph.nodes):
        if node.target is torch.ops.aten._assert_tensor_metadata.default:  # of what the example has anyway
            program.graph.erase_node(node)
    program.graph.eliminate_dead_code()
    signature = program.graph_signature
    if signature.buffers_to_mutate or signature.user_inputs_to_mutate:
        changed = [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()]
        raise GossamerError(f"the forward of `{type(model).__name__}` changes {', '.join(changed)} in evaluation mode.")
    (end,) = (node for node in program.graph.nodes if node.op == "output")
    results = tuple(TENSOR if isinstance(leaf, fx.Node) else leaf for leaf in end.args[0])
    outputs = tuple(leaf for leaf in end.args[0] if isinstance(leaf, fx.Node))
    return Traced(program.graph, _tensors(program), outputs, results, program.call_spec.out_spec)


def _tensors(program: torch.export.ExportedProgram) -> dict[fx.Node, Tensor | None]:
    signature = program.graph_signature
    state = {**program.state_dict, **program.constants}
    names = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    found: dict[fx.Node, Tensor | None] = {}
    for node in program.graph.nodes:
        if node.op == "placeholder":
            tensor = state[names[node.name]] if node.name in names else None
            found[node] = None if tensor is None else tensor.detach()
    return found
