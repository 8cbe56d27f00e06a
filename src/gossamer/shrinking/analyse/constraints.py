"""Constraints: what must hold between the units that are kept, so that tensors have shapes and kernels take them."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

__all__ = ["EqualCounts", "Heads", "Multiple", "Rectangle", "SizeAttribute"]


@dataclass(frozen=True)
class EqualCounts:
    """Label matrices with common rows: a row is removed from all of them, or all rows keep equally many units."""

    matrices: tuple[Tensor, ...]
    reason: str
    rows_removable: bool = True


@dataclass(frozen=True)
class Multiple:
    """A vector of labels of which a multiple of `factor` is kept: the kernel that reads the units takes no others."""

    labels: Tensor
    factor: int
    reason: str


@dataclass(frozen=True)
class Heads:
    """One side of an attention: the units of its heads `(h, d)`, the label of each head `(h,)`, and the module.

    `are_keys` for queries and keys, whose units are unified, and not for values.
    """

    units: Tensor
    heads: Tensor
    module: str
    are_keys: bool


@dataclass(frozen=True)
class Rectangle:
    """A label tensor whose kept positions must be a Cartesian product of kept indices per dimension."""

    labels: Tensor
    reason: str


@dataclass(frozen=True)
class SizeAttribute:
    """An integer attribute of a module that counts units: labels of a vector, or rows of a matrix of labels."""

    module: str
    attribute: str
    labels: Tensor
