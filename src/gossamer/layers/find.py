"""The weights of a model that are regularized and counted, in order of execution."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from gossamer.errors import GossamerError
from gossamer.example import Example
from gossamer.layers.cost import call_order, multiply_adds
from gossamer.layers.kinds import layouts
from gossamer.layers.layout import Layout
from gossamer.layers.sharding import refuse_flat_parameters, reshard_

__all__ = [
    "Weight", "find_weights", "is_parameter", "original_module", "plain_name", "require_supported", "weights_with_macs",
]  # fmt: skip


@dataclass(frozen=True)
class Weight:
    """One weight tensor of one layer. It reads the module at each access, so it stays valid when the module shrinks."""

    name: str
    module: nn.Module
    attribute: str

    @property
    def parameter(self) -> nn.Parameter:
        """The parameter itself."""
        return self.module.get_parameter(self.attribute)

    @property
    def shape(self) -> torch.Size:
        """Its shape."""
        return self.parameter.shape

    @property
    def layout(self) -> Layout:
        """The meaning of its dimensions."""
        return layouts(self.module)[self.attribute]


def original_module(model: nn.Module) -> nn.Module:
    """Unwrap `torch.compile` and data-parallel wrappers, which prefix all parameter names."""
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        return original_module(model.module)
    inner = model._modules.get("_orig_mod")
    return model if inner is None else original_module(inner)


def plain_name(name: str) -> str:
    """A name without the prefixes that `torch.compile` adds to wrapped submodules."""
    return name.replace("_orig_mod.", "").removesuffix("._orig_mod")


def find_weights(model: nn.Module, example: Example | None = None) -> tuple[Weight, ...]:
    """All weights of the model's weight layers, tied ones once, in order of execution.

    With an `example` the order is that of a forward pass. Without one the model is traced symbolically, and where
    its `forward` does not allow that, the order of definition is taken.
    """
    refuse_flat_parameters(model)
    model = original_module(model)
    modules = dict(_weight_modules(model))
    called = call_order(model, example) if example is not None else _symbolic_order(model, modules.values())
    position = {module: index for index, module in reversed(list(enumerate(called)))}
    in_order = sorted(modules.items(), key=lambda item: position.get(item[1], len(called)))

    weights: dict[object, Weight] = {}
    for module_name, module in in_order:
        for attribute in layouts(module):
            name = plain_name(f"{module_name}.{attribute}" if module_name else attribute)
            weight = Weight(name, module, attribute)
            weights.setdefault(weight.parameter if is_parameter(weight) else (module, attribute), weight)
    if not weights:
        raise GossamerError(
            f"`{type(model).__name__}` has no weight layers (linear, convolution, embedding, recurrent, attention). "
            "Pass the model that holds them."
        )
    return tuple(weights.values())


def weights_with_macs(model: nn.Module, example: Example | None) -> tuple[tuple[Weight, int], ...]:
    """`find_weights`, each with its MACs on the example; 0 without one."""
    macs = {} if example is None else multiply_adds(model, example)
    return tuple((weight, macs.get(weight.parameter, 0)) for weight in find_weights(model, example))


def is_parameter(weight: Weight) -> bool:
    """Whether the weight is a parameter, and not computed from others by a parametrization."""
    path, _, attribute = weight.attribute.rpartition(".")
    return attribute in weight.module.get_submodule(path)._parameters


def require_supported(weight: Weight) -> None:
    """Raise unless the weight is a parameter that can become exactly zero."""
    if not is_parameter(weight):
        raise GossamerError(
            f"`{weight.name}` is computed by a parametrization and is no parameter, so it cannot become exactly zero. "
            "Remove the parametrization first (`torch.nn.utils.parametrize.remove_parametrizations`), or leave the "
            "layer out by `skip`."
        )
    if not weight.parameter.is_floating_point():
        raise GossamerError(
            f"`{weight.name}` has dtype {weight.parameter.dtype}; only real floating-point weights are supported. "
            "Leave the layer out by `skip`."
        )


def _weight_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    inside_attention: set[nn.Module] = set()
    for name, module in model.named_modules():
        if any(isinstance(own, nn.parameter.UninitializedParameter) for own in module._parameters.values()):
            raise GossamerError(f"The layer `{name}` is not initialised yet. Run the model once on an example first.")
        if isinstance(module, nn.MultiheadAttention):
            inside_attention.add(module.out_proj)  # its weight is one of the attention's own
        if layouts(module) and module not in inside_attention:
            yield name, module


class _LayerTracer(fx.Tracer):
    """A symbolic tracer that treats weight layers as leaves."""

    def __init__(self, weight_layers: Collection[nn.Module]) -> None:
        super().__init__()
        self._weight_layers = weight_layers

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return m in self._weight_layers or super().is_leaf_module(m, module_qualified_name)


def _symbolic_order(model: nn.Module, weight_layers: Collection[nn.Module]) -> list[nn.Module]:
    with _attributes_restored(model), torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            graph = _LayerTracer(weight_layers).trace(model)
        except Exception:  # whatever a user's forward raises on symbolic values
            return []
        finally:
            reshard_(model)  # its hooks have run
    return [model.get_submodule(str(node.target)) for node in graph.nodes if node.op == "call_module"]


@contextmanager
def _attributes_restored(model: nn.Module) -> Iterator[None]:
    """Restore attributes that a traced `forward` may set, such as a symbolic value kept as `self.last`."""
    before: list[tuple[nn.Module, dict[str, Any], dict[str, Any]]] = [
        (module, dict(module.__dict__), dict(module._buffers)) for module in model.modules()
    ]
    try:
        yield
    finally:
        for module, attributes, buffers in before:
            module.__dict__.clear()
            module.__dict__.update(attributes)
            module._buffers.clear()
            module._buffers.update(buffers)
