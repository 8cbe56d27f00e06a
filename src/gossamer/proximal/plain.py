"""The plain implementation of the proximal step: PyTorch operations, in place, chunk by chunk.

Every operation of a penalty allocates a tensor of the size of its input. For a large weight these temporaries come from
main memory, mostly from newly allocated pages. Chunks that fit into the cache are faster
(`gossamer bench proximal-step`) and need little memory.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gossamer.layers import Layout
from gossamer.regularizers import Rule, Term

__all__ = ["plain_step_"]

_PIECE = 2**17  # weights; half a megabyte of float32


def plain_step_(rule: Rule, weight: Tensor, step: Tensor) -> None:
    """weight <- rule.prox(weight, step), computed in float32 or float64 and rounded once."""
    computed = weight.to(weight.dtype if weight.dtype == torch.float64 else torch.float32)
    if not _has_pieces(computed):
        weight.copy_(rule.prox(computed, step))
        return
    for term in rule.terms:
        _term_step_(term, computed, rule.scale * step, rule.weight.layout)
    if computed is not weight:
        weight.copy_(computed)


def _has_pieces(weight: Tensor) -> bool:
    """Whether the weight is large, on the CPU, contiguous, and not a tensor subclass such as a sharded tensor."""
    plain = weight.device.type == "cpu" and type(weight) in (Tensor, nn.Parameter)
    return plain and weight.numel() > _PIECE and weight.is_contiguous()


def _term_step_(term: Term, weight: Tensor, step: Tensor, layout: Layout) -> None:
    def seen(tensor: Tensor) -> Tensor:
        return tensor.reshape(-1, 1) if term.groups is None else layout.as_groups(tensor, term.groups)

    groups = seen(weight)
    length = max(1, _PIECE // groups.shape[1])
    pieces = torch.split(groups, length)
    steps = [step] * len(pieces) if step.dim() == 0 else torch.split(seen(step), length)
    for piece, own_step in zip(pieces, steps, strict=True):
        piece.copy_(term.penalty.kernel(piece, term.coefficient * own_step))
    if term.groups is not None and groups.data_ptr() != weight.data_ptr():  # the groups were gathered into a copy
        weight.copy_(layout.from_groups(groups, term.groups, tuple(weight.shape)))
