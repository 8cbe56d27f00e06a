"""What C is written for: a portable file, a batch in the lanes of vectors, or one sample by itself.

One element of a tensor is a `float` in portable and in sample code. In batch code it is a vector `V16` (or `V8`, `V4`)
that holds this element of as many samples: whatever an operation does to a float, it does to all of them at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.inference.machine import Machine

__all__ = ["Target", "batch_target", "portable_target", "sample_target", "vector_prefix"]


@dataclass(frozen=True)
class Target:
    """How the C of one kind is written.

    Attributes:
        element: The C type of one element.
        prefix: What the names of helper functions start with.
        scope: What the names of the functions of operations start with.
        sums: How many sums a kernel keeps in registers at most.
        borders: Whether tensors may be stored with zeros around them, for padded convolutions.
        lanes: Samples in an element.
        vectors: How many neighbouring positions of one sample may form a vector; none where there are no vectors.
        fast: Whether functions are written for vectors, instead of calls of `<math.h>`.
        cache: Bytes of the first-level cache, into which blocks of inputs are to fit; 0: there are no blocks.
    """

    element: str
    prefix: str
    scope: str
    sums: int
    borders: bool
    lanes: int = 1
    vectors: tuple[int, ...] = ()
    fast: bool = True
    cache: int = 0

    @property
    def is_batch(self) -> bool:
        """Whether an element holds several samples."""
        return self.lanes > 1

    def splat(self, number: str) -> str:
        """`number` as an element."""
        return f"{self.prefix}splat({number})" if self.is_batch else number


def portable_target(name: str) -> Target:
    """C99 for any compiler."""
    return Target("float", f"{name}_", f"{name}_", sums=8, borders=True, fast=False)


def batch_target(machine: Machine, name: str) -> Target:
    """Vectors of samples."""
    prefix = vector_prefix(machine.lanes)
    return Target(
        f"V{machine.lanes}",
        prefix,
        f"{name}_{prefix}",
        _most_sums(machine),
        borders=True,
        lanes=machine.lanes,
        cache=machine.cache,
    )


def sample_target(machine: Machine, name: str) -> Target:
    """Vectors of neighbouring positions of one sample."""
    return Target(
        "float", "s_", f"{name}_s_", _most_sums(machine), borders=False, vectors=machine.vectors, cache=machine.cache
    )


def vector_prefix(lanes: int) -> str:
    """What the names of functions of vectors with so many floats start with."""
    return f"v{lanes}_"


def _most_sums(machine: Machine) -> int:
    """A quarter of the registers is left for the weight and for what the compiler needs."""
    return machine.registers - machine.registers // 4
