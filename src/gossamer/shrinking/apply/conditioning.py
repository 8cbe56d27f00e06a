"""Calls at which a comparison shows nothing, because the model itself amplifies rounding to other outputs.

A normalisation by the statistics of two or three numbers divides by their difference, however small it is: with one
pixel left and a batch of two, units that are nearly equal become far apart. What a model makes of parameters that are
rounded otherwise tells such a call from one at which a smaller model computes something else. That takes a forward
pass, and is needed only where there are fewer numbers to normalise than in the example.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from gossamer.example import Call, disagreement
from gossamer.shrinking.apply.probes import Probe

__all__ = ["well_conditioned"]

_ROUNDINGS = 8
"""A sum over other numbers of terms differs by several roundings."""


def well_conditioned(
    model: nn.Module, probes: Sequence[Probe], example: Call, outputs_of: Callable[[Probe], list[Tensor]]
) -> list[Probe]:
    """Those at which a model, rounded otherwise, has the same outputs; all if it does not normalise by its inputs."""
    if not any(map(_normalises_by_inputs, model.modules())):
        return list(probes)
    with _rounded_otherwise(model):
        return [
            probe
            for probe in probes
            if not _has_smaller_size(probe.call, example) or disagreement(outputs_of(probe), probe.outputs) is None
        ]


def _has_smaller_size(call: Call, example: Call) -> bool:
    pairs = zip(call.tensors(), example.tensors(), strict=False)  # a list may have another length
    return any(own < other for left, right in pairs for own, other in zip(left.shape, right.shape, strict=False))


def _normalises_by_inputs(module: nn.Module) -> bool:
    own = isinstance(module, nn.modules.batchnorm._NormBase)
    return own and (module.training or module.running_mean is None)


@contextmanager
def _rounded_otherwise(model: nn.Module) -> Iterator[None]:
    generator = torch.Generator().manual_seed(0)
    saved = [(p, p.detach().clone()) for p in model.parameters() if p.is_floating_point()]
    try:
        with torch.no_grad():
            for parameter, value in saved:
                signs = torch.rand(value.shape, generator=generator).sub_(0.5).sign_().to(value.device)
                parameter.mul_(1 + _ROUNDINGS * torch.finfo(value.dtype).eps * signs.to(value.dtype))
        yield
    finally:
        with torch.no_grad():
            for parameter, value in saved:
                parameter.copy_(value)
