"""Verification: the outputs of the full and of the smaller model, on the example and on random inputs.

Some random inputs have the shapes of the example, one has another batch size, length or image size, as far as the model
accepts them. Evaluation mode is compared, or the mode in which the model is, with dropout disabled. Two outputs agree
if they differ by rounding only (`gossamer.example.disagreement`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from gossamer.errors import GossamerError
from gossamer.example import Call, disagreement, evaluating

__all__ = ["Reference", "evaluation_reference", "training_reference"]

Outputs = list[list[Tensor]]
"""For each call, the tensors that the model returns."""

_MOST_GROUPS = 8  # of dimensions that are tried at another size, each with a few forward passes at most

_WITH_DROPOUT = {
    functional.dropout,
    functional.dropout1d,
    functional.dropout2d,
    functional.dropout3d,
    functional.alpha_dropout,
    functional.feature_alpha_dropout,
    functional.multi_head_attention_forward,
}


@dataclass(frozen=True)
class Reference:
    """Calls with the outputs of the full model, in evaluation mode or in the mode in which its modules are.

    `other_sizes` is the last of the calls if its inputs have other sizes than the example, else None.
    """

    calls: list[Call]
    outputs: Outputs
    training: bool = False
    other_sizes: Call | None = None

    def at_example_sizes(self) -> Reference:
        """The calls whose inputs have the shapes of the example."""
        count = len(self.calls) - (self.other_sizes is not None)
        return Reference(self.calls[:count], self.outputs[:count], self.training)

    def matches(self, model: nn.Module) -> bool:
        """Whether a model gives these outputs; false if it fails."""
        try:
            found = _training_outputs(model, self.calls) if self.training else _evaluation_outputs(model, self.calls)
        except Exception:  # a forward that does not run with the smaller sizes
            return False
        return found is not None and _agree(self.outputs, found)

    def verified(self, build: Callable[[], nn.Module]) -> nn.Module | None:
        """The model that `build` returns, if it gives these outputs; else None."""
        try:
            model = build()
        except Exception:  # a plan that cannot be carried out, such as a graph that cannot be rewritten
            return None
        return model if self.matches(model) else None


def evaluation_reference(model: nn.Module, call: Call) -> Reference:
    """The outputs of the model in evaluation mode, on the example and on those random inputs that it accepts.

    Raises:
        GossamerError: when the model fails on the example, or its outputs are random.
    """
    calls, outputs = [], []
    with evaluating(model), _buffers_restored(model):
        for number, candidate in enumerate(_with_random_inputs(call)):
            try:
                found = candidate.run(model)
            except GossamerError:
                if number == 0:
                    raise
                continue  # a model whose inputs have to be sorted, say, or positive definite
            calls.append(candidate)
            outputs.append(found)
        again = call.run(model)
        other = _with_other_sizes(model, call)
    if disagreement(again, outputs[0]) is not None:
        raise GossamerError(
            f"`model` ({type(model).__name__}) gives different outputs for the same input in evaluation mode, so "
            "nothing can be verified. Remove the randomness from its forward, or make it depend on `self.training`."
        )
    if other is not None:
        calls.append(other[0])
        outputs.append(other[1])
    return Reference(calls, outputs, other_sizes=None if other is None else other[0])


def training_reference(model: nn.Module, evaluation: Reference) -> Reference | None:
    """The outputs in the mode in which the model is; None where they cannot be compared."""
    try:
        found = _training_outputs(model, evaluation.calls)
    except GossamerError:  # such as batch statistics of a single element
        return None
    return None if found is None else replace(evaluation, outputs=found, training=True)


def _with_random_inputs(call: Call) -> list[Call]:
    """The example, and random inputs of its shapes: unit normal ones, and ones of its mean and standard deviation."""
    generator = torch.Generator().manual_seed(0)
    return [call, _random(call, generator, {}), _random(call, generator, {}, like_example=True)]


def _random(
    call: Call, generator: torch.Generator, shapes: Mapping[int, tuple[int, ...]], *, like_example: bool = False
) -> Call:
    """The call with random tensors; `shapes` has other shapes than those of the example, by the id of the tensor."""

    def draw(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or leaf.numel() == 0:
            return leaf
        shape = shapes.get(id(leaf), tuple(leaf.shape))
        if leaf.dtype == torch.bool:  # a mask: with the share of ones that the example has
            return leaf.flatten()[torch.randint(leaf.numel(), shape, generator=generator).to(leaf.device)]
        if not leaf.is_floating_point():  # indices: within the range that the example shows to be valid
            low, high = min(0, int(leaf.min())), int(leaf.max()) + 1
            return torch.randint(low, max(high, low + 1), shape, generator=generator).to(leaf)
        noise = torch.randn(shape, generator=generator).to(leaf)
        mean, scale = leaf.double().mean(), leaf.double().std(correction=0)
        if like_example and bool(torch.isfinite(scale)) and bool(scale > 0):
            return noise * scale.to(leaf) + mean.to(leaf)
        return noise

    args, kwargs = pytree.tree_map(draw, (call.args, call.kwargs))
    return Call(args, kwargs)


def _with_other_sizes(model: nn.Module, call: Call) -> tuple[Call, list[Tensor]] | None:
    """A random call with another batch size, length and image size, as far as the model accepts them, and its outputs.

    Dimensions that have one size in the example are changed together: first the batch, then the other sizes.
    """
    generator = torch.Generator().manual_seed(1)
    accepted: dict[_Dim, int] = {}
    found: tuple[Call, list[Tensor]] | None = None
    for dims in _groups_of_dims(call):
        if any(dim in accepted for dim in dims):
            continue
        size = dims[0].size
        for other in dict.fromkeys((size + 1,) if dims[0].is_batch else (2 * size, size + 1, size // 2)):
            tried = {**accepted, **dict.fromkeys(dims, other)}
            candidate = _random(call, generator, _resized(call, tried)) if other > 0 else None
            try:
                outputs = candidate.run(model) if candidate is not None else None
            except GossamerError:
                continue
            if candidate is not None and outputs is not None:
                accepted, found = tried, (candidate, outputs)
                break
    return found


class _Dim(NamedTuple):
    """A dimension of a tensor of the call."""

    tensor: int
    dim: int
    size: int
    is_batch: bool


def _groups_of_dims(call: Call) -> list[list[_Dim]]:
    """Dimensions to change together: the batch; all others of equal size; those of equal size at one position."""
    tensors = [tensor for tensor in call.tensors() if tensor.dim()]
    batch = tensors[0].size(0) if tensors else 0
    dims = [
        _Dim(id(tensor), dim, size, is_batch=dim == 0 and size == batch)
        for tensor in tensors
        for dim, size in enumerate(tensor.shape)
    ]
    keys: list[Callable[[_Dim], object]] = [
        lambda dim: "batch" if dim.is_batch else None,
        lambda dim: None if dim.is_batch else dim.size,
        lambda dim: None if dim.is_batch else (dim.size, dim.dim),
    ]
    groups = []
    for key in keys:
        found: dict[object, list[_Dim]] = {}
        for dim in dims:
            if key(dim) is not None:
                found.setdefault(key(dim), []).append(dim)
        groups += list(found.values())
    return groups[:_MOST_GROUPS]


def _resized(call: Call, sizes: Mapping[_Dim, int]) -> dict[int, tuple[int, ...]]:
    shapes = {id(tensor): list(tensor.shape) for tensor in call.tensors()}
    for dim, size in sizes.items():
        shapes[dim.tensor][dim.dim] = size
    return {tensor: tuple(shape) for tensor, shape in shapes.items()}


def _evaluation_outputs(model: nn.Module, calls: list[Call]) -> Outputs:
    with evaluating(model), _buffers_restored(model):
        return [call.run(model) for call in calls]


def _training_outputs(model: nn.Module, calls: list[Call]) -> Outputs | None:
    """Outputs without dropout; None if they are random all the same. Buffers and random state are restored."""
    with torch.no_grad(), _buffers_restored(model), torch.random.fork_rng(devices=[]), _WithoutDropout():
        torch.manual_seed(0)  # so that what is random is random in the same way every time
        found = [call.run(model) for call in calls]
        torch.manual_seed(1)
        again = [call.run(model) for call in calls]
    return found if _agree(found, again) else None


@contextmanager
def _buffers_restored(model: nn.Module) -> Iterator[None]:
    """Undo what a forward writes into buffers (running statistics, counters)."""
    saved = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, before in saved:
                buffer.copy_(before)


class _WithoutDropout(TorchFunctionMode):
    """Disable dropout in modules, in functions and inside attention."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        named = dict(kwargs or {})
        if func in _WITH_DROPOUT:
            named["training"] = False
        elif func is functional.scaled_dot_product_attention and len(args) > 4:
            args = (*args[:4], 0.0, *args[5:])
        elif func is functional.scaled_dot_product_attention:
            named["dropout_p"] = 0.0
        return func(*args, **named)


def _agree(expected: Outputs, found: Outputs) -> bool:
    return all(disagreement(new, old) is None for old, new in zip(expected, found, strict=True))
