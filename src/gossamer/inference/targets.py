"""What C is written for: a portable file, a batch in the lanes of a vector, or one sample by itself.

One element of a tensor is a `float` in portable and in sample code. In batch code it is a vector `V` that holds this
element of several samples, so that whatever an operation does to a float it does to all of them at once.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Target", "batch_target", "portable_target", "sample_target"]


@dataclass(frozen=True)
class Target:
    """How the C of one kind is written.

    Attributes:
        element: The C type of one element.
        prefix: What the names of functions start with.
        accumulators: How many sums a kernel keeps in registers at most.
        frames: Whether tensors may be stored with zeros around them, for padded convolutions.
        vector: Neighbouring places of one sample in a vector; 1 where vectors are not written out.
        fast: Whether functions are written for vectors, instead of calls of `<math.h>`.
    """

    element: str
    prefix: str
    accumulators: int
    frames: bool
    vector: int
    fast: bool

    @property
    def is_batch(self) -> bool:
        """Whether an element holds several samples."""
        return self.element != "float"

    def splat(self, number: str) -> str:
        """`number` as an element."""
        return f"v_splat({number})" if self.is_batch else number


def portable_target(name: str) -> Target:
    """C99 for any compiler."""
    return Target(element="float", prefix=f"{name}_", accumulators=8, frames=True, vector=1, fast=False)


def batch_target(registers: int) -> Target:
    """Vectors of samples, for a machine with so many vector registers."""
    return Target(
        element="V", prefix="v_", accumulators=_most_sums(registers), frames=True, vector=1, fast=True
    )


def sample_target(registers: int, vector: int) -> Target:
    """Vectors of neighbouring places of one sample."""
    return Target(
        element="float", prefix="s_", accumulators=_most_sums(registers), frames=False, vector=vector, fast=True
    )


def _most_sums(registers: int) -> int:
    """A quarter of the registers is left for the weight and for what the compiler needs."""
    return registers - registers // 4
