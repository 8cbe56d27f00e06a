"""Which units a unit reads.

If an output unit `o` of a layer is live, it reads every input unit `i` with `nonzero[o, i]`; an input that is
*foldable* (its constant is zero, or can be added to the bias) need not be live for that.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

__all__ = ["Dependency", "LayerCall", "ParameterView"]


@dataclass(frozen=True)
class Dependency:
    """Readers `(g, o)` read inputs `(g, i)` where `nonzero` `(g, o, i)`, except inputs that are `foldable` `(g, i)`."""

    readers: Tensor
    inputs: Tensor
    nonzero: Tensor
    foldable: Tensor


@dataclass(frozen=True)
class ParameterView:
    """A weight as a view of a parameter: for each dimension of the view, the parameter's dimension and the indices.

    `origin` has one index per dimension of the parameter: in a dimension that the view does not have, the selected one.
    """

    name: str
    dims: tuple[int, ...]
    index: tuple[Tensor, ...]
    origin: tuple[int, ...] = ()


@dataclass(frozen=True)
class LayerCall:
    """One call of a layer: output labels `(g, o)`, input labels `(g, i)`, and the inputs' constants where known."""

    outputs: Tensor
    inputs: Tensor
    constants: Tensor
    known: Tensor
    node_name: str
