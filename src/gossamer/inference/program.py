"""A lowered network: a short list of operations on tensors of fixed shape, for one sample.

A sample is a batch of one. Its tensors keep the batch dimension, of size one, wherever the model puts it, so every
shape is the shape that PyTorch reports for a batch of one. A program runs in two ways: by the PyTorch references of its
operations (`Program.run`), which is how it is checked, and as C (`gossamer.inference.codegen`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import torch
from torch import Tensor

if TYPE_CHECKING:
    from gossamer.inference.kernel import Kernel
    from gossamer.inference.layout import Border

__all__ = [
    "Alias",
    "Constant",
    "Input",
    "Operation",
    "Program",
    "Result",
    "Shape",
    "Step",
    "Value",
    "broadcast",
    "root",
    "typed",
    "viewed",
]

Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor of one sample; two values are the same only if they are the same object.

    C code holds every element as a float32: a boolean as 0 or 1, an integer exactly up to 2^24. `dtype` is what it is
    for PyTorch.
    """

    shape: Shape
    dtype: torch.dtype = field(default=torch.float32, kw_only=True)


@dataclass(frozen=True, eq=False)
class Input(Value):
    """An input of the program."""


@dataclass(frozen=True, eq=False)
class Constant(Value):
    """A tensor that does not depend on the input."""

    tensor: Tensor

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", self.tensor.dtype)


@dataclass(frozen=True, eq=False)
class Result(Value):
    """What an operation computes."""


@dataclass(frozen=True, eq=False)
class Alias(Value):
    """Another look at the memory of `base`: a slice, a permutation, an expansion, another shape.

    `view` is PyTorch's own view operation. It is applied to a tensor without data to learn offset and strides.
    """

    base: Value
    view: Callable[[Tensor], Tensor]


class Operation(ABC):
    """A pure function of tensors of one sample, with its C code and its PyTorch reference."""

    @property
    @abstractmethod
    def inputs(self) -> tuple[Value, ...]:
        """The values that are read."""

    @property
    @abstractmethod
    def shape(self) -> Shape:
        """The shape of the result."""

    @abstractmethod
    def reference(self, *tensors: Tensor) -> Tensor:
        """The result for these inputs, by PyTorch."""

    @abstractmethod
    def emit(self, kernel: Kernel) -> None:
        """Write the body of the C function."""

    @property
    def accepts_border(self) -> bool:
        """Whether the result may be written with zeros around it."""
        return True

    def borders(self) -> Sequence[tuple[Value, Border]]:
        """The inputs that are best stored with zeros around them."""
        return ()

    def describe(self) -> str:
        """A line for the comment over the C function."""
        return type(self).__name__.lower()


class Step(NamedTuple):
    """An operation, and the value that it computes."""

    operation: Operation
    output: Result


@dataclass(frozen=True)
class Program:
    """Inputs, steps in the order of execution, and outputs: results, with the shapes in which they are handed out."""

    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    outputs: tuple[Result, ...]
    shapes: tuple[Shape, ...]

    def run(self, samples: Sequence[Tensor]) -> list[Tensor]:
        """The outputs for one sample, by the references of the operations."""
        known: dict[Value, Tensor] = dict(zip(self.inputs, samples, strict=True))
        for operation, output in self.steps:
            known[output] = operation.reference(*(_tensor(value, known) for value in operation.inputs))
        return [known[output].reshape(shape) for output, shape in zip(self.outputs, self.shapes, strict=True)]

    def uses(self) -> dict[Value, int]:
        """How often each value is read, through whatever alias, by steps and as an output."""
        counts: dict[Value, int] = {}
        for value in self._read():
            counts[root(value)] = counts.get(root(value), 0) + 1
        return counts

    def _read(self) -> Iterator[Value]:
        for operation, _ in self.steps:
            yield from operation.inputs
        yield from self.outputs


def root(value: Value) -> Value:
    """The value whose memory this one looks at."""
    return value.base if isinstance(value, Alias) else value


def broadcast(*shapes: Sequence[int]) -> Shape:
    """The shape to which tensors of these shapes are broadcast together."""
    return tuple(torch.broadcast_shapes(*shapes))  # type: ignore[no-untyped-call]


def viewed(value: Value, view: Callable[[Tensor], Tensor]) -> Value:
    """`view` of a value: an alias, or the constant itself."""
    if isinstance(value, Constant):
        seen = view(value.tensor)
        return Constant(tuple(seen.shape), seen)
    earlier = value.view if isinstance(value, Alias) else None
    both = view if earlier is None else lambda tensor: view(earlier(tensor))
    return Alias(_shape_of(value, view), root(value), both, dtype=value.dtype)


def typed(value: Value, dtype: torch.dtype) -> Value:
    """The same elements, as those of another dtype."""
    if value.dtype is dtype or isinstance(value, Constant):
        return value
    return Alias(value.shape, root(value), value.view if isinstance(value, Alias) else _unchanged, dtype=dtype)


def _unchanged(tensor: Tensor) -> Tensor:
    return tensor


def _shape_of(value: Value, view: Callable[[Tensor], Tensor]) -> Shape:
    return tuple(view(torch.empty(value.shape, device="meta")).shape)


def _tensor(value: Value, known: dict[Value, Tensor]) -> Tensor:
    if isinstance(value, Constant):
        return value.tensor
    if isinstance(value, Alias):
        return value.view(known[value.base])
    return known[value]
