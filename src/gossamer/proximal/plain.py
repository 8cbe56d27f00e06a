"""The plain way to take a proximal step: PyTorch's operations, in place, a piece of the weight at a time.

Every operation of a penalty sweeps over its whole tensor and makes a new one. On a large weight each of these comes
from memory, and mostly from the operating system, anew; pieces that stay in the cache are faster (question a of
`gossamer bench`) and need no more memory than themselves.
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
    """Large, on the CPU, in one stretch of memory, and no subclass (a sharded tensor) with its own idea of pieces."""
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
