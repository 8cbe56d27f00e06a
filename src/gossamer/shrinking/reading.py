"""Reading: which unit needs which other, and which units must keep equal numbers.

A layer's output unit, when it is alive, needs the inputs for which it has a non-zero weight. Everything else that
needs units pins them. From these the fixed point in `solve` finds out who is alive.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

__all__ = ["Layer", "Product", "Reads", "Uniform", "Use"]


@dataclass(frozen=True)
class Reads:
    """Blocks of outputs `(g, o)` that read inputs `(g, i)` where `nonzero` `(g, o, i)`, unless `spared` `(g, i)`."""

    outputs: Tensor
    inputs: Tensor
    nonzero: Tensor
    spared: Tensor


@dataclass(frozen=True)
class Uniform:
    """Matrices of labels with common rows: a row goes from all of them, or keeps equally many units in each."""

    matrices: tuple[Tensor, ...]
    reason: str
    rows_may_go: bool = True


@dataclass(frozen=True)
class Product:
    """A tensor of labels whose survivors must be a product of per-dimension choices."""

    labels: Tensor
    reason: str


@dataclass(frozen=True)
class Use:
    """One call of a layer: the labels and constants `(g, i)` that come in, the labels `(g, o)` that go out."""

    outputs: Tensor
    inputs: Tensor
    constants: Tensor
    known: Tensor
    node_name: str


@dataclass
class Layer:
    """A weight with all of its calls.

    `strength` `(g, o, i)` is what an output gains when an input rises by one at all positions; a constant `c` folds
    as `strength * c` into the bias. `folds` says whether there is a bias to fold into (or one can be made) and the
    layer is free of padding.
    """

    weight: str
    bias: str | None
    nonzero: Tensor
    strength: Tensor
    folds: bool
    obstacle: str
    uses: list[Use] = field(default_factory=list)

    def constants(self) -> Tensor:
        """The constant of each input `(g, i)`, where `steady` says that it is one."""
        return self.uses[0].constants

    def steady(self) -> Tensor:
        """Inputs `(g, i)` that are the same constant in every call."""
        first = self.uses[0]
        steady = first.known
        for use in self.uses[1:]:
            steady = steady & use.known & (use.constants == first.constants)
        return steady

    def spared(self) -> Tensor:
        """Inputs `(g, i)` that may leave although they are read: their constant folds, or is zero."""
        steady = self.steady()
        return steady if self.folds else steady & (self.constants() == 0)

    def reads(self) -> list[Reads]:
        """What the calls of this layer read."""
        spared = self.spared()
        return [Reads(use.outputs, use.inputs, self.nonzero, spared) for use in self.uses]
