"""How much does a model magnify rounding?

The error of float32 is |f32(w, x) - f(w, x)|, with f in float64. Where a model magnifies rounding, as a difference of
almost equal numbers does, that is one draw of a wide distribution: with the last bit of a weight it changes by an order
of magnitude. So it is also taken where every input and every weight may be off by one unit in its last place, which is
as much as rounding them would do; the largest of several draws estimates how far *any* way of computing the model in
float32 may be from f.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from gossamer.example import Call, evaluating

__all__ = ["float32_errors", "in_float64"]

_DRAWS = 8


def in_float64(model: nn.Module, call: Call) -> list[Tensor]:
    """The outputs of `model` in evaluation mode, computed in float64."""
    twin = copy.deepcopy(model).double()
    with evaluating(twin):
        return _mapped(call, torch.Tensor.double).run(twin)


def float32_errors(model: nn.Module, call: Call, exact: Sequence[Tensor]) -> list[float]:
    """For each output of `model` in float32 the largest difference to `exact`, over several draws of the last bits."""
    draws = [[_distance(*pair) for pair in zip(found, exact, strict=True)] for found in _nearby(model, call)]
    return [max(own) for own in zip(*draws, strict=True)]


def _nearby(model: nn.Module, call: Call) -> Iterator[list[Tensor]]:
    """The outputs of `model`; then those with weights and inputs moved by at most one unit in their last place."""
    generator = torch.Generator().manual_seed(0)

    def moved(tensor: Tensor) -> Tensor:
        sides = torch.randint(-1, 2, tensor.shape, generator=generator)
        stays = (sides == 0) | (tensor == 0)
        return torch.where(stays, tensor, torch.nextafter(tensor, sides * torch.finfo(tensor.dtype).max))

    with evaluating(model):
        yield call.run(model)
    for _ in range(_DRAWS):
        twin = copy.deepcopy(model)
        with evaluating(twin):
            for tensor in (*twin.parameters(), *twin.buffers()):
                if tensor.is_floating_point():
                    tensor.copy_(moved(tensor))
            yield _mapped(call, moved).run(twin)


def _mapped(call: Call, function: Any) -> Call:
    """The call with a function of its tensors of floating-point numbers."""

    def convert(leaf: Any) -> Any:
        return function(leaf) if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf

    return Call(*pytree.tree_map(convert, (call.args, call.kwargs)))


def _distance(found: Tensor, exact: Tensor) -> float:
    return (found.double() - exact).abs().max().item() if exact.numel() else 0.0
