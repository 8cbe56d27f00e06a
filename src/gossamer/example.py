"""Example inputs: the argument `example` as one call of the model."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from gossamer.errors import GossamerError

__all__ = ["Call", "Example", "call_with", "disagreement", "evaluating", "restoring"]

# One tensor, the positional arguments, or the keyword arguments of a call.
Example: TypeAlias = Tensor | Sequence[Any] | Mapping[str, Any]

# Tolerance relative to the largest output, by dtype. Other dtypes must agree exactly.
_ROUNDING = {
    torch.float64: 1e-10, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1,
    torch.complex128: 1e-10, torch.complex64: 1e-4,
}  # fmt: skip


@dataclass(frozen=True)
class Call:
    """The arguments of one call of a model: positional ones, or keyword ones in the order of its signature."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def tensors(self) -> list[Tensor]:
        """The tensors among the arguments, in the order in which an exported graph takes them."""
        return _tensors((self.args, self.kwargs))

    def run(self, model: nn.Module) -> list[Tensor]:
        """Call `model` and return the tensors of its output, flattened."""
        try:
            return _tensors(model(*self.args, **self.kwargs))
        except Exception as error:
            raise GossamerError(
                f"`{type(model).__name__}` fails on `example`: {type(error).__name__}: {error}. "
                "Give an example that the model takes."
            ) from error


def call_with(model: nn.Module, example: Example) -> Call:
    """Bind `example` to the signature of `model.forward`; raise `GossamerError` if it does not fit."""
    if not isinstance(model, nn.Module):
        raise GossamerError(f"`model` is a {type(model).__name__}. Give a torch.nn.Module.")
    if isinstance(example, Tensor):
        call = Call((example,), {})
    elif isinstance(example, Mapping):
        call = Call((), dict(example))
    elif isinstance(example, tuple | list):
        call = Call(tuple(example), {})
    else:
        raise GossamerError(
            f"`example` is a {type(example).__name__}. Give a tensor, a tuple of positional arguments, "
            "or a dictionary of keyword arguments."
        )
    try:
        order = list(inspect.signature(model.forward).bind(*call.args, **call.kwargs).arguments)
    except TypeError as error:
        raise GossamerError(f"`example` does not fit {type(model).__name__}.forward: {error}.") from error
    except ValueError as error:  # a model from torch.jit.trace
        raise GossamerError(
            f"`model` is a {type(model).__name__}, whose forward has no signature. "
            "Give the module that it was made from."
        ) from error
    if not call.tensors():
        raise GossamerError("`example` contains no tensor. Give inputs that the model can run on.")
    named = sorted(call.kwargs, key=lambda name: order.index(name) if name in order else len(order))
    return Call(call.args, {name: call.kwargs[name] for name in named})


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put `model` into evaluation mode without gradients; restore the mode of every module at the end."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def restoring(model: nn.Module) -> Iterator[None]:
    """Undo what a forward writes into the model: buffers, and attributes such as a window size or a cached length.

    Also what it puts into lists, dictionaries and sets of its modules, and the rows of an embedding that are scaled to
    a largest norm as soon as they are read.
    """
    modules = [module for module in model.modules() if not _awaits_input(module)]
    attributes = [(vars(module), dict(vars(module))) for module in modules]
    contents = [(value, value.copy()) for own, _ in attributes for value in own.values() if _is_container(value)]
    written: list[tuple[dict[str, Any], str, Tensor, Tensor]] = [
        (store, name, tensor, tensor.detach().clone())
        for module in model.modules()
        for store in (module._buffers, module._parameters if _renormalises(module) else {})
        for name, tensor in store.items()
        if tensor is not None
    ]
    try:
        yield
    finally:
        for current, before in attributes:
            for name in current.keys() - before.keys():
                del current[name]
            current.update(before)
        for container, content in contents:
            container.clear()
            (container.extend if isinstance(container, list) else container.update)(content)
        with torch.no_grad():
            for owner, name, tensor, value in written:
                tensor.copy_(value)
                owner[name] = tensor


def _is_container(value: Any) -> bool:
    return type(value) in (list, dict, set)


def _renormalises(module: nn.Module) -> bool:
    return isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.max_norm is not None


def _awaits_input(module: nn.Module) -> bool:
    """Whether the first forward of a lazy module has still to make its parameters."""
    return isinstance(module, nn.modules.lazy.LazyModuleMixin) and module.has_uninitialized_params()


def disagreement(outputs: list[Tensor], wanted: list[Tensor]) -> str | None:
    """Describe how `outputs` differ from `wanted` beyond rounding; None if they agree."""
    if len(outputs) != len(wanted):
        return f"there are {len(outputs)} outputs instead of {len(wanted)}"
    found = (_difference(output, right) for output, right in zip(outputs, wanted, strict=True))
    return next((f"output {number} {said}" for number, said in enumerate(found) if said), None)


def _difference(output: Tensor, wanted: Tensor) -> str | None:
    if output.shape != wanted.shape or output.dtype is not wanted.dtype:
        return f"is a {output.dtype} of shape {tuple(output.shape)}, not a {wanted.dtype} of {tuple(wanted.shape)}"
    if wanted.dtype not in _ROUNDING:
        return None if output.equal(wanted) else f"differs in {(output != wanted).sum().item()} elements"
    size = wanted[wanted.isfinite()].abs()
    allowed = _ROUNDING[wanted.dtype] * (size.max().item() if size.numel() else 0.0)
    if torch.allclose(output, wanted, rtol=0.0, atol=allowed, equal_nan=True):
        return None
    return f"differs by up to {(output - wanted).abs().max().item():.3g}"


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]
