"""Order of execution and MACs of the weight layers, observed in one forward pass on an example."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from gossamer.errors import GossamerError
from gossamer.example import Example, call_with, evaluating
from gossamer.layers.kinds import kind_of, layouts

__all__ = ["Convention", "call_order", "multiply_adds"]

# "true": MACs at the sizes that the network computes. "cges": as in the published code of combined group and exclusive
# sparsity, which counts a padded convolution at the output size that it would have without padding.
Convention = Literal["true", "cges"]

_Observer = Callable[[nn.Module, tuple[Any, ...], dict[str, Any], Any], None]


def call_order(model: nn.Module, example: Example) -> list[nn.Module]:
    """The weight layers in the order in which a forward pass first calls them."""
    called: dict[nn.Module, None] = {}
    _observe(model, example, lambda module, args, kwargs, output: called.setdefault(module))
    return list(called)


def multiply_adds(model: nn.Module, example: Example, convention: Convention = "true") -> dict[nn.Parameter, int]:
    """Weight -> MACs of one forward pass on the example, summed over all calls of all layers that share the weight.

    Only products with weights count: products of two activations in attention do not. An embedding look-up has no
    MACs.
    """
    totals: dict[nn.Parameter, int] = {}

    def add(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        for attribute, macs in _call_macs(module, args, kwargs, output, convention).items():
            path, _, name = attribute.rpartition(".")
            weight = module.get_submodule(path)._parameters.get(name)
            if weight is not None:  # otherwise a parametrization computes it
                totals[weight] = totals.get(weight, 0) + macs

    _observe(model, example, add)
    return totals


def _observe(model: nn.Module, example: Example, observer: _Observer) -> None:
    """Run the model on the example in evaluation mode and pass every call of a weight layer to the observer."""
    call = call_with(model, example)
    handles = [
        module.register_forward_hook(observer, with_kwargs=True) for module in model.modules() if layouts(module)
    ]
    try:
        with evaluating(model), _seeing_hooks(model):
            call.run(model)
    finally:
        for handle in handles:
            handle.remove()


def _seeing_hooks(model: nn.Module) -> AbstractContextManager[object]:
    """Run compiled submodules in eager mode, since they ignore new hooks. Only if needed: the switch takes a second."""
    compiled = any("_orig_mod" in module._modules for module in model.modules())
    return torch.compiler.set_stance("force_eager") if compiled else nullcontext()


def _call_macs(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any, convention: Convention
) -> dict[str, int]:
    """MACs of one call: number of weights times how often each is used."""
    sizes = {name: math.prod(layout.sizes) for name, layout in layouts(module).items()}
    if isinstance(module, nn.MultiheadAttention):
        return _attention_macs(module, sizes, args, kwargs)
    received = args[0] if args else next(iter(kwargs.values()))
    uses = _uses(module, received, output, convention)
    return {name: uses * size for name, size in sizes.items()}


def _uses(module: nn.Module, received: Tensor | PackedSequence, output: Any, convention: Convention) -> int:
    """How often each weight of the layer is used in one call."""
    kind = kind_of(module)
    if kind is None or kind.uses is None:
        return 0
    if convention == "cges" and isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return _unpadded_places(module, received.data)
    units = next(iter(layouts(module).values()))
    if kind.uses == "input":  # of a packed sequence, the steps that are really there
        return received.data.numel() // max(units.count("inputs"), 1)
    if not isinstance(output, Tensor):
        raise GossamerError(
            f"A {type(module).__name__} returns a {type(output).__name__}, and its kind counts the positions of its "
            'output. Register it with `uses="input"`.'
        )
    return output.numel() // max(units.count("outputs"), 1)


def _unpadded_places(module: nn.Conv1d | nn.Conv2d | nn.Conv3d, received: Tensor) -> int:
    dimensions = len(module.kernel_size)
    lengths = received.shape[-dimensions:]
    shape = zip(lengths, module.kernel_size, module.stride, module.dilation, strict=True)
    batch = received.numel() // max(module.in_channels * math.prod(lengths), 1)
    return batch * math.prod(
        max((length - dilation * (kernel - 1) - 1) // stride + 1, 0) for length, kernel, stride, dilation in shape
    )


def _attention_macs(
    module: nn.MultiheadAttention, sizes: dict[str, int], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, int]:
    named = dict(zip(("query", "key", "value"), args, strict=False)) | kwargs
    query, key, value = (named[name].numel() // named[name].shape[-1] for name in ("query", "key", "value"))
    uses = {"q_proj_weight": query, "k_proj_weight": key, "v_proj_weight": value, "out_proj.weight": query}
    macs = {name: uses[name] * size for name, size in sizes.items() if name in uses}
    if "in_proj_weight" in sizes:
        macs["in_proj_weight"] = (query + key + value) * sizes["in_proj_weight"] // 3
    return macs
