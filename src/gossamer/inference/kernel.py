"""One C function under construction: its operands, its constant arrays, its scratch memory, its text."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from torch import Tensor

from gossamer.inference.layout import NO_BORDER, Border, contiguous
from gossamer.inference.source import Code
from gossamer.inference.targets import Target

__all__ = ["C_TYPES", "FLOATS_IN_A_LINE", "Array", "Constants", "Kernel", "Operand", "compact"]

Array: TypeAlias = npt.NDArray[Any]

# 64 bytes: a cache line.
FLOATS_IN_A_LINE = 16

C_TYPES = {"float32": "float", "uint16": "uint16_t", "uint32": "uint32_t", "int32": "int32_t"}


class Operand(NamedTuple):
    """A tensor as a C function sees it: a pointer to its first element, and strides."""

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    border: Border = NO_BORDER
    is_constant: bool = False


class Constants:
    """The constant arrays of a program, each stored once."""

    def __init__(self) -> None:
        self.arrays: list[Array] = []
        self._numbers: dict[tuple[str, bytes], int] = {}  # by type and checksum

    def add(self, array: Array) -> int:
        """The number of this array."""
        assert str(array.dtype) in C_TYPES, array.dtype
        plain = np.ascontiguousarray(array).reshape(-1)
        key = (str(plain.dtype), hashlib.sha256(plain.tobytes()).digest())
        if key not in self._numbers:
            self._numbers[key] = len(self.arrays)
            self.arrays.append(plain)
        return self._numbers[key]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays)


class Kernel:
    """The C function of one operation: pointers to inputs, constants and scratch memory, and to the output."""

    def __init__(self, target: Target, constants: Constants, inputs: Sequence[Operand], output: Operand) -> None:
        self.target = target
        self.inputs = inputs
        self.output = output
        self.code = Code()
        self.helpers: set[tuple[str, str]] = set()
        self.scratch_elements = 0
        self.reports_errors = False
        self.constants: list[int] = []
        self._pool = constants

    def constant(self, array: Array) -> str:
        """A parameter that points to this constant array."""
        self.constants.append(self._pool.add(array))
        return f"k{len(self.constants) - 1}"

    def scratch(self, elements: int) -> str:
        """A pointer to memory that the function may use while it runs."""
        start = self.scratch_elements
        self.scratch_elements += -(-elements // FLOATS_IN_A_LINE) * FLOATS_IN_A_LINE
        return f"(scratch + {start})" if start else "scratch"

    def helper(self, name: str, prefix: str | None = None) -> str:
        """The C name of a helper function, of the target's kind or of the kind of another prefix."""
        chosen = self.target.prefix if prefix is None else prefix
        self.helpers.add((chosen, name))
        return f"{chosen}{name}"

    def error(self) -> str:
        """The int to set to 1 when an input is out of its range."""
        self.reports_errors = True
        return "*failed"

    def parameters(self) -> str:
        """The parameter list of the function."""
        element = self.target.element
        found = [f"const {'float' if x.is_constant else element} *restrict {x.name}" for x in self.inputs]
        for position, number in enumerate(self.constants):
            found.append(f"const {C_TYPES[str(self._pool.arrays[number].dtype)]} *restrict k{position}")
        if self.scratch_elements:
            found.append(f"{element} *restrict scratch")
        if self.reports_errors:
            found.append("int *restrict failed")
        return ", ".join([*found, f"{element} *restrict {self.output.name}"])


def compact(tensor: Tensor) -> tuple[Array, tuple[int, ...]]:
    """The elements of a constant without those that `expand` repeats, and its strides on them."""
    repeated = [size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
    for dimension, is_repeated in enumerate(repeated):
        if is_repeated:
            tensor = tensor.narrow(dimension, 0, 1)
    plain = contiguous(tensor.shape)
    strides = tuple(0 if is_repeated else step for is_repeated, step in zip(repeated, plain, strict=True))
    return tensor.detach().contiguous().numpy(), strides
