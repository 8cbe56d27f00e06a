"""The plain implementation of a proximal step: PyTorch operations, in place, one chunk of the weight at a time.

Every operation of a penalty reads its whole tensor and allocates a new one. On a large weight all of these go through
main memory. Chunks that stay in the cache are faster and need no temporary memory beyond their own size.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gossamer.layers import Layout
from gossamer.penalties import ScalarPenalty
from gossamer.proximal.metric import Metric
from gossamer.regularizers import Rule, Term

__all__ = ["plain_step_"]

_CHUNK = 2**17  # weights; half a megabyte of float32


def plain_step_(rule: Rule, weight: Tensor, step: float | Tensor, metric: Metric | None = None) -> None:
    """weight <- proximal step of size step / d_i, computed in float32 or float64 and rounded once.

    Weights that wait (inverse_i = 0) do not move and do not count as members of their groups.
    """
    computed = weight.to(weight.dtype if weight.dtype == torch.float64 else torch.float32)
    size = torch.as_tensor(step, dtype=torch.float64)
    if metric is None:
        moved = _prox(rule, computed, size)
    else:
        inverse = metric.inverse().to(computed.dtype)
        waits = inverse == 0
        moved = torch.where(waits, computed, _prox(rule, computed.masked_fill(waits, 0.0), size * inverse))
    if moved is not weight:
        weight.copy_(moved)


def _prox(rule: Rule, weight: Tensor, step: Tensor) -> Tensor:
    """The proximal step: in place if the weight can be split into chunks, else a new tensor."""
    if not _has_chunks(weight):
        return rule.prox(weight, step)
    for term in rule.terms:
        _term_step_(term, weight, rule.scale * step, rule.weight.layout)
    return weight


def _has_chunks(weight: Tensor) -> bool:
    """Large, contiguous, on the CPU, and not a subclass such as a sharded tensor."""
    plain = weight.device.type == "cpu" and type(weight) in (Tensor, nn.Parameter)
    return plain and weight.numel() > _CHUNK and weight.is_contiguous()


def _term_step_(term: Term, weight: Tensor, step: Tensor, layout: Layout) -> None:
    def as_vectors(tensor: Tensor) -> Tensor:
        if term.groups is not None:
            return layout.as_groups(tensor, term.groups)
        return tensor.reshape(-1, 1 if isinstance(term.penalty, ScalarPenalty) else tensor.shape[-1])

    vectors = as_vectors(weight)
    length = max(1, _CHUNK // vectors.shape[1])
    chunks = torch.split(vectors, length)
    steps = [step] * len(chunks) if step.dim() == 0 else torch.split(as_vectors(step), length)
    for chunk, own_step in zip(chunks, steps, strict=True):
        chunk.copy_(term.penalty.kernel(chunk, term.coefficient * own_step))
    if term.groups is not None and vectors.data_ptr() != weight.data_ptr():  # `as_groups` made a copy
        weight.copy_(layout.from_groups(vectors, term.groups, tuple(weight.shape)))
