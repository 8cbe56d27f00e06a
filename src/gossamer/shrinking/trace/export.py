"""Export a model to an ATen graph, and look things up in it.

The model is exported in evaluation mode. `torch.export` keeps layers, views and attention as single operations, as
the rules of `analyse` expect.
"""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._ops import OpOverload
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.utils import _pytree as pytree

from gossamer.errors import GossamerError
from gossamer.example import Call, evaluating, restoring
from gossamer.shrinking.trace.autocast import inline_disabled
from gossamer.shrinking.trace.functionalize import functionalize
from gossamer.shrinking.trace.stopping import Stopping

__all__ = [
    "TracedModel",
    "arguments",
    "caller_path",
    "first_line",
    "is_mutation",
    "quick_export",
    "shape_of",
    "size_hint",
    "state_tensors",
    "trace",
    "unfused_attention",
]


_ANY_SIZE = 7


@dataclass(frozen=True)
class TracedModel:
    """An exported graph.

    `states` maps placeholder nodes to the parameter or buffer that they stand for. A shared tensor has one name here,
    the first of its names in the model; `tensors` maps these names to the tensors themselves.
    """

    call: Call
    program: ExportedProgram
    graph: fx.Graph
    states: Mapping[fx.Node, str]
    tensors: Mapping[str, Tensor]

    @property
    def inputs(self) -> list[fx.Node]:
        """The placeholders of the arguments of the call."""
        specs = self.program.graph_signature.input_specs
        nodes = [node for node in self.graph.nodes if node.op == "placeholder"]
        return [node for node, spec in zip(nodes, specs, strict=True) if spec.kind is InputKind.USER_INPUT]

    @functools.cached_property
    def constants(self) -> Mapping[fx.Node, Tensor]:
        """The placeholders of tensors that the forward spells out, or takes from plain attributes, with these."""
        lifted = self.program.graph_signature.inputs_to_lifted_tensor_constants
        found = {node: self.program.constants[lifted[node.name]] for node in self.graph.nodes if node.name in lifted}
        return {node: tensor for node, tensor in found.items() if isinstance(tensor, Tensor)}

    @property
    def has_autocast(self) -> bool:
        """Whether a part of the forward is in a graph of its own, because it enables autocast."""
        return bool(_autocast_regions(self.graph))

    @functools.cached_property
    def guards(self) -> nn.Module | None:
        """Raises an error if it is called with inputs, flattened, that the graph was not exported for."""
        found: nn.Module | None = getattr(self.program.module(), "_guards_fn", None)
        return found


def trace(
    model: nn.Module, call: Call, *, symbolic: Sequence[Set[int]] | None = None, needed: Call | None = None
) -> TracedModel:
    """Export the model on one call.

    Args:
        model: the module to export; it keeps its training or evaluation mode.
        call: the arguments that it is exported with.
        symbolic: for each tensor of the call, the dimensions to export as symbolic sizes; they must be two at least.
        needed: stop as soon as the graph is bound to sizes that this call does not have.

    Raises:
        GossamerError: when `torch.export` cannot trace the model, or it was stopped.
    """
    call = _of_distinct_tensors(call)
    shapes = None if symbolic is None else _dynamic_shapes(model, call, symbolic)
    with evaluating(model), restoring(model), warnings.catch_warnings(), unfused_attention(), quick_export(symbolic):
        warnings.simplefilter("ignore")
        if _has_bounded_cache(model):
            call.run(model)  # or the forward keeps what it computes while it is traced: tensors without values
        with nullcontext() if shapes is None else Stopping(call, needed or call):
            program = _export(model, call, shapes)
        if regions := _autocast_regions(program.graph):
            inline_disabled(program.graph_module, regions)
        mutations = [node for node in program.graph.nodes if is_mutation(node)]
        if mutations:
            program = functionalize(program, mutations)
        program.graph.eliminate_dead_code()
    tensors = state_tensors(model)
    canonical = {id(tensor): name for name, tensor in reversed(tensors.items())}
    signature = program.graph_signature
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    states = {
        node: canonical[id(tensors[names[node.name]])]
        for node in program.graph.nodes
        if node.op == "placeholder" and names.get(node.name) in tensors
    }
    return TracedModel(call, program, program.graph, states, {name: tensors[name] for name in canonical.values()})


def state_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name; a shared tensor appears under each of its names."""
    return {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }


def arguments(node: fx.Node) -> dict[str, Any]:
    """The arguments of an ATen operation by their names in the schema, with defaults filled in."""
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


def shape_of(node: fx.Node) -> tuple[int, ...]:
    """The shape of a value at the sizes of the example."""
    return tuple(size_hint(size) for size in node.meta["val"].shape)


def size_hint(size: int | torch.SymInt) -> int:
    """A size at the example; for a symbolic size, its hint; for one that depends on values (`x[mask]`), any number."""
    if isinstance(size, int):
        return size
    if size.node.hint is not None:
        return int(size.node.hint)
    expression = size.node.expr
    known = size.node.shape_env.backed_var_to_val
    return int(expression.subs({symbol: known.get(symbol, _ANY_SIZE) for symbol in expression.free_symbols}))


def caller_path(node: fx.Node) -> str:
    """The path of the module whose forward executes this operation."""
    stack = node.meta.get("nn_module_stack") or {"": ("", None)}
    path = list(stack.values())[-1][0]
    return str(path).split("@")[0]


def _of_distinct_tensors(call: Call) -> Call:
    """The call with copies of a tensor that it has more than once: the exporter would take these for one input."""
    seen: set[int] = set()

    def distinct(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or id(leaf) not in seen:
            seen.add(id(leaf))
            return leaf
        return leaf.detach().clone()

    args, kwargs = pytree.tree_map(distinct, (call.args, call.kwargs))
    return Call(args, kwargs)


def _export(model: nn.Module, call: Call, shapes: Any) -> ExportedProgram:
    try:
        return torch.export.export(model, call.args, call.kwargs, dynamic_shapes=shapes, strict=False)
    except Exception as error:
        if "DynamicCache" in str(error):
            raise GossamerError(
                f"`model` ({type(model).__name__}) returns a cache of keys and values, which torch.export cannot "
                "trace. Add use_cache=False to `example`, as a keyword argument, or set model.config.use_cache = False."
            ) from error
        raise GossamerError(
            f"`model` ({type(model).__name__}) cannot be traced by torch.export on `example`: {first_line(error)}. "
            "The control flow of its forward must not depend on values. Rewrite that part of the forward, or shrink "
            "the submodules that can be exported."
        ) from error


def _dynamic_shapes(model: nn.Module, call: Call, symbolic: Sequence[Set[int]]) -> Any:
    """The argument `dynamic_shapes` of `torch.export`, which has the structure of the bound arguments."""
    waiting = iter(symbolic)

    def shape(leaf: Any) -> Any:
        return dict.fromkeys(next(waiting), Dim.AUTO) if isinstance(leaf, Tensor) else None

    args, kwargs = pytree.tree_map(shape, (call.args, call.kwargs))
    return kwargs or dict(inspect.signature(model.forward).bind(*args).arguments)


def _autocast_regions(graph: fx.Graph) -> list[fx.Node]:
    """The calls of what the exporter puts into graphs of their own, because autocast is enabled or disabled there."""
    return graph.find_nodes(op="call_function", target=torch.ops.higher_order.wrap_with_autocast)


def _has_bounded_cache(model: nn.Module) -> bool:
    """Whether a `functools.lru_cache` that forgets is among the names that the classes of a model see."""
    classes = {each for module in model.modules() for each in type(module).__mro__}
    names = [vars(sys.modules[each]) for each in {each.__module__ for each in classes} if each in sys.modules]
    values = (value for own in (*map(vars, classes), *names) for value in own.values())
    caches = (value for value in values if isinstance(value, functools._lru_cache_wrapper))
    return any(cache.cache_parameters()["maxsize"] is not None for cache in caches)


def is_mutation(node: fx.Node) -> bool:
    """Whether an operation overwrites one of its inputs."""
    return isinstance(node.target, OpOverload) and node.target._schema.is_mutable


def first_line(error: Exception) -> str:
    """The kind of an error and the first line of its message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


@contextmanager
def quick_export(symbolic: Sequence[Set[int]] | None = None) -> Iterator[None]:
    """Leave out of an export what costs time and is not needed here.

    That is the lines of source behind every operation, and the code that each pass of the exporter generates from the
    graph. With symbolic sizes also the cache of fake tensors: its keys are expressions, which cost more than they save.
    """
    from torch._dynamo import config as dynamo  # slow to import; an export does it anyway

    traces = fx.config.do_not_emit_stack_traces
    fx.config.do_not_emit_stack_traces = True
    cache = nullcontext() if symbolic is None else dynamo.patch(fake_tensor_cache_enabled=False)
    try:
        with _use_lazy_graph_module(True), cache:
            yield
    finally:
        fx.config.do_not_emit_stack_traces = traces


@contextmanager
def unfused_attention() -> Iterator[None]:
    """Let `nn.Transformer` compute as it does in training, without what the exporter cannot trace.

    The fused kernel would hide its layers from the graph. Whether a mask is causal depends on its values, and is only a
    hint for kernels: the mask says the same.
    """
    enabled = torch.backends.mha.get_fastpath_enabled()
    detect = nn.modules.transformer._detect_is_causal_mask
    torch.backends.mha.set_fastpath_enabled(False)
    nn.modules.transformer._detect_is_causal_mask = lambda mask, is_causal=None, size=None: bool(is_causal)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(enabled)
        nn.modules.transformer._detect_is_causal_mask = detect
