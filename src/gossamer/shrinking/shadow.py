"""Shadows: what the analysis knows about a value of the graph, without knowing the value.

A shadow has the shape of the value that it stands for. Dimensions along which nothing changes (batch and space,
nearly always) are kept at stride 0, so that the shadow of a large feature map is as small as its channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.shrinking.labels import NEUTRAL

__all__ = ["Shadow", "as_matrix", "settle", "spread", "thin", "unknown", "varying", "vector_along"]


@dataclass(frozen=True)
class Shadow:
    """Who stands at each position (`labels`), and what: `value` holds wherever `known` is true."""

    labels: Tensor
    value: Tensor
    known: Tensor

    @property
    def shape(self) -> torch.Size:
        """The shape of the value that this shadow stands for."""
        return self.labels.shape

    @property
    def labelled(self) -> bool:
        """Whether any unit stands in this value."""
        return bool((thin(self.labels)[0] != NEUTRAL).any())


def varying(tensor: Tensor) -> tuple[int, ...]:
    """Dimensions along which a settled tensor changes."""
    return tuple(d for d in range(tensor.dim()) if tensor.size(d) > 1 and tensor.stride(d) != 0)


def settle(tensor: Tensor) -> Tensor:
    """The same tensor, at stride 0 along every dimension in which it does not change."""
    shape = tensor.shape
    if 0 in shape:
        return tensor
    for dim in varying(tensor):
        first = tensor.narrow(dim, 0, 1)
        if bool((thin(tensor, keep=dim)[0] == thin(first, keep=dim)[0]).all()):
            tensor = first.expand(shape)
    return tensor


def thin(*tensors: Tensor, keep: int | None = None) -> tuple[Tensor, ...]:
    """Tensors of one shape, cut to size 1 along every dimension in which none of them changes."""
    dims = range(tensors[0].dim())
    idle = [d for d in dims if d != keep and all(t.size(d) > 1 and t.stride(d) == 0 for t in tensors)]
    for dim in idle:
        tensors = tuple(t.narrow(dim, 0, 1) for t in tensors)
    return tensors


def spread(vector: Tensor, shape: Sequence[int], dim: int) -> Tensor:
    """A vector laid along one dimension of a shape, at stride 0 along the others."""
    where = [1] * len(shape)
    where[dim] = -1
    return vector.reshape(where).expand(tuple(shape))


def unknown(labels: Tensor, dtype: torch.dtype = torch.float32) -> Shadow:
    """The shadow of a value of which only the units are known."""
    return Shadow(
        labels,
        torch.zeros((), dtype=dtype).expand(labels.shape),
        torch.zeros((), dtype=torch.bool).expand(labels.shape),
    )


def vector_along(shadow: Shadow, dim: int) -> tuple[Tensor, Tensor]:
    """Per unit along `dim`: its constant, and whether it is that constant at every position."""
    value, known = thin(shadow.value, shadow.known, keep=dim)
    value = value.movedim(dim, 0).flatten(1)
    known = known.movedim(dim, 0).flatten(1)
    first = value[:, :1]
    return first[:, 0], known.all(1) & (value == first).all(1)


def as_matrix(tensor: Tensor, rows: Sequence[int], columns: Sequence[int]) -> Tensor:
    """A tensor as rows by columns, at the first position of all other dimensions."""
    rest = [d for d in range(tensor.dim()) if d not in rows and d not in columns]
    for dim in rest:
        tensor = tensor.narrow(dim, 0, 1)
    height = int(torch.Size([tensor.size(d) for d in rows]).numel())
    return tensor.permute(*rest, *rows, *columns).reshape(height, -1)
