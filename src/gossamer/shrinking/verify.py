"""Verify: full and shrunk model side by side, on the example and on random inputs of its shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from gossamer.errors import GossamerError
from gossamer.example import Call, disagreement, evaluating

__all__ = ["Outputs", "agree", "buffers_kept", "probes", "steady_calls", "training_outputs"]

Outputs = list[list[Tensor]]
"""For each call the tensors that the model returns."""

_PROBES = 2

_WITH_DROPOUT = {
    functional.dropout,
    functional.dropout1d,
    functional.dropout2d,
    functional.dropout3d,
    functional.alpha_dropout,
    functional.feature_alpha_dropout,
    functional.multi_head_attention_forward,
}


def probes(call: Call) -> list[Call]:
    """The example, and random inputs like it (integers are shuffled, so that they stay in their range)."""
    generator = torch.Generator().manual_seed(0)
    found = [call]
    for _ in range(_PROBES):
        args, kwargs = pytree.tree_map(lambda leaf: _like(leaf, generator), (call.args, call.kwargs))
        found.append(Call(args, kwargs))
    return found


def _like(leaf: Any, generator: torch.Generator) -> Any:
    if not isinstance(leaf, Tensor) or leaf.numel() == 0:
        return leaf
    if not leaf.is_floating_point():
        order = torch.randperm(leaf.numel(), generator=generator).to(leaf.device)
        return leaf.flatten()[order].view(leaf.shape)
    noise = torch.randn(leaf.shape, generator=generator).to(leaf)
    spread = leaf.std() if leaf.numel() > 1 else leaf.new_ones(())
    return noise * spread + leaf.mean()


@contextmanager
def buffers_kept(model: nn.Module) -> Iterator[None]:
    """What a forward writes into buffers (running statistics, counters) is taken back."""
    saved = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, before in saved:
                buffer.copy_(before)


def steady_calls(model: nn.Module, call: Call) -> tuple[list[Call], Outputs]:
    """The example and those random inputs that the model takes, with its outputs for them in evaluation mode.

    An error if the example does not fit, or if its outputs are random.
    """
    calls, found = [], []
    with evaluating(model), buffers_kept(model):
        for number, probe in enumerate(probes(call)):
            try:
                outputs = probe.run(model)
            except GossamerError:
                if number == 0:
                    raise
                continue  # an input that has to be sorted, say, or positive definite
            calls.append(probe)
            found.append(outputs)
        again = call.run(model)
    if disagreement(again, found[0]) is not None:
        raise GossamerError(
            f"`model` ({type(model).__name__}) gives different outputs for the same input in evaluation mode, so "
            "nothing can be verified. Take the randomness out of its forward (or make it depend on `self.training`)."
        )
    return calls, found


def training_outputs(model: nn.Module, calls: list[Call]) -> Outputs | None:
    """The outputs in the mode in which the model is, with dropout off; None where they cannot be compared.

    Running statistics and the random state are as before afterwards.
    """
    try:
        with torch.no_grad(), buffers_kept(model), torch.random.fork_rng(devices=[]), _WithoutDropout():
            torch.manual_seed(0)  # what is random all the same must not decide differently every time
            found = [call.run(model) for call in calls]
            torch.manual_seed(1)
            again = [call.run(model) for call in calls]
    except GossamerError:  # such as batch statistics of a single number; evaluation mode is compared instead
        return None
    return found if agree(found, again) else None


class _WithoutDropout(TorchFunctionMode):
    """Dropout does nothing, be it a module, a function, or inside an attention."""

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


def agree(expected: Outputs, found: Outputs) -> bool:
    """Whether all results are the same but for rounding."""
    return all(disagreement(new, old) is None for old, new in zip(expected, found, strict=True))
