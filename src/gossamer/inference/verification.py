"""Is the lowered network the model? Inputs like the example, in batches of several samples, and what the model says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from gossamer.errors import GossamerError
from gossamer.example import Call, disagreement, evaluating
from gossamer.inference.rounding import float32_errors, in_float64

__all__ = ["Expectation", "check_model", "check_outputs", "expect", "repeated"]


# Sums in another order have another error, seldom several times as large.
_TIMES_THE_ERROR = 4.0
# Relative to the largest output; a model whose own error is larger says nothing.
_LARGEST_ERROR = 1e-2


@dataclass(frozen=True)
class Expectation:
    """A call, the tensors that the model returns for it, and the dimension of each that is the batch.

    `exact` computes the same outputs in float64, and `errors` how far those of float32 may be from them.
    """

    call: Call
    outputs: list[Tensor]
    batch_dimensions: tuple[int, ...]
    exact: Callable[[], list[Tensor]]
    errors: Callable[[list[Tensor]], list[float]]


def check_model(model: nn.Module, call: Call) -> None:
    """An error unless model and example are on the CPU and of float32, and samples are independent of each other."""
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is None:
            raise GossamerError(
                f"{name!r} ({type(module).__name__}) normalises by the statistics of the batch, so the output of a "
                "sample depends on the others. Give it running statistics (track_running_stats=True)."
            )
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for name, tensor in [*tensors.items(), *(("example", tensor) for tensor in call.tensors())]:
        if tensor.device.type != "cpu":
            raise GossamerError(
                f"{name!r} is on the device {tensor.device}; C is written for and run on the CPU. "
                "Give model.cpu() and an example on the CPU."
            )
        if tensor.is_floating_point() and tensor.dtype is not torch.float32:
            raise GossamerError(
                f"{name!r} is a {tensor.dtype}; only float32 is computed. Give model.float() and a float32 example."
            )


def expect(model: nn.Module, call: Call, samples: int) -> Expectation:
    """The outputs of `model`, in evaluation mode, for so many samples like those of the example."""
    larger = _batch(call, samples)
    with evaluating(model):
        outputs = larger.run(model)
        single = _first(larger).run(model)
    if not outputs:
        raise GossamerError(
            f"`{type(model).__name__}` returns no tensor. Give a model whose output is one or holds some."
        )
    dimensions = tuple(
        _batch_dimension(number, one, many, samples)
        for number, (one, many) in enumerate(zip(single, outputs, strict=True))
    )
    return Expectation(
        larger, outputs, dimensions, partial(in_float64, model, larger), partial(float32_errors, model, larger)
    )


def check_outputs(expected: Expectation, outputs: Sequence[Tensor]) -> None:
    """An error unless these are the outputs of the model, to rounding.

    Some networks magnify rounding beyond any fixed tolerance. Where outputs differ by more than that, they have to be
    about as close to the outputs in float64 as those of the model itself (`gossamer.inference.rounding`).
    """
    difference = disagreement(list(outputs), expected.outputs)
    if difference and not _as_exact_as_the_model(outputs, expected):
        raise GossamerError(
            f"the lowered network disagrees with the model: {difference}. Either the model's output for a sample "
            "depends on the other samples of the batch (or is random), which cannot be lowered; or the lowering is at "
            "fault. Run the model as it is."
        )


def _as_exact_as_the_model(outputs: Sequence[Tensor], expected: Expectation) -> bool:
    try:
        exact = expected.exact()
        errors = expected.errors(exact)
    except Exception:  # whatever a model does that cannot be converted
        return False
    for own, error, right in zip(outputs, errors, exact, strict=True):
        own_error = (own.double() - right).abs().max()
        if not (own_error <= _TIMES_THE_ERROR * error <= _LARGEST_ERROR * right.abs().max()):
            return False
    return True


def _batch_dimension(number: int, one: Tensor, many: Tensor, samples: int) -> int:
    """The dimension that grew with the batch."""
    grown = (
        [dimension for dimension in range(one.dim()) if one.shape[dimension] != many.shape[dimension]]
        if one.dim() == many.dim()
        else []
    )
    if len(grown) != 1 or one.shape[grown[0]] != 1 or many.shape[grown[0]] != samples:
        raise GossamerError(
            f"output {number} has the shape {tuple(one.shape)} for one sample and {tuple(many.shape)} for {samples}. "
            "Only models are lowered in whose outputs one dimension is the batch."
        )
    return grown[0]


def _batch(call: Call, samples: int) -> Call:
    """The samples of the example, and random ones like them; integers are drawn from the example."""
    generator = torch.Generator().manual_seed(0)

    def grow(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        given = leaf[:samples].detach()
        shape = (samples - len(given), *leaf.shape[1:])
        if leaf.is_floating_point():
            spread = leaf.std() if leaf.numel() > 1 else leaf.new_ones(())
            more = torch.randn(shape, generator=generator) * (spread if spread > 0 else 1.0) + leaf.mean()
        else:
            flat = leaf.flatten()
            more = flat[torch.randint(len(flat), shape, generator=generator)]
        return torch.cat([given, more.to(leaf.dtype)])

    args, kwargs = pytree.tree_map(grow, (call.args, call.kwargs))
    return Call(args, kwargs)


def repeated(call: Call, samples: int) -> Call:
    """A batch of so many samples, over and over those of the call."""

    def repeat(leaf: Any) -> Any:
        return leaf[torch.arange(samples) % len(leaf)] if isinstance(leaf, Tensor) else leaf

    args, kwargs = pytree.tree_map(repeat, (call.args, call.kwargs))
    return Call(args, kwargs)


def _first(call: Call) -> Call:
    args, kwargs = pytree.tree_map(
        lambda leaf: leaf[:1] if isinstance(leaf, Tensor) else leaf, (call.args, call.kwargs)
    )
    return Call(args, kwargs)
