"""Verification: the outputs of the full and of the smaller model, on the example and on random inputs of its shape.

Evaluation mode is compared, or the mode in which the model is, with dropout disabled. Two outputs agree if they differ
by rounding only (`gossamer.example.disagreement`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

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

_RANDOM_INPUTS = 2

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
    """Calls with the outputs of the full model, in evaluation mode or in the mode in which its modules are."""

    calls: list[Call]
    outputs: Outputs
    training: bool = False

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
    if disagreement(again, outputs[0]) is not None:
        raise GossamerError(
            f"`model` ({type(model).__name__}) gives different outputs for the same input in evaluation mode, so "
            "nothing can be verified. Remove the randomness from its forward, or make it depend on `self.training`."
        )
    return Reference(calls, outputs)


def training_reference(model: nn.Module, calls: list[Call]) -> Reference | None:
    """The outputs in the mode in which the model is; None where they cannot be compared."""
    try:
        found = _training_outputs(model, calls)
    except GossamerError:  # such as batch statistics of a single element
        return None
    return None if found is None else Reference(calls, found, training=True)


def _with_random_inputs(call: Call) -> list[Call]:
    """The example, and random inputs like it (integers are permuted, so that they stay in their range)."""
    generator = torch.Generator().manual_seed(0)
    found = [call]
    for _ in range(_RANDOM_INPUTS):
        args, kwargs = pytree.tree_map(lambda leaf: _random_like(leaf, generator), (call.args, call.kwargs))
        found.append(Call(args, kwargs))
    return found


def _random_like(leaf: Any, generator: torch.Generator) -> Any:
    if not isinstance(leaf, Tensor) or leaf.numel() == 0:
        return leaf
    if not leaf.is_floating_point():
        order = torch.randperm(leaf.numel(), generator=generator).to(leaf.device)
        return leaf.flatten()[order].view(leaf.shape)
    noise = torch.randn(leaf.shape, generator=generator).to(leaf)
    scale = leaf.std() if leaf.numel() > 1 else leaf.new_ones(())
    return noise * scale + leaf.mean()


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
