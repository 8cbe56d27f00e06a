"""Elements of a tensor at places that do not depend on the input: indexing by constants, rolled and flipped tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gossamer.inference.kernel import Kernel
from gossamer.inference.layout import contiguous
from gossamer.inference.operations.convolution.sparse_weight import smallest_unsigned
from gossamer.inference.program import Operation, Shape, Value
from gossamer.inference.registry import Builder, constant_of, lowers
from gossamer.inference.source import nest

__all__ = ["Gather"]

aten = torch.ops.aten


@dataclass(frozen=True, eq=False)
class Gather(Operation):
    """y[i] = x[places[i]], with x as one row; the result has the shape of `places`."""

    x: Value
    places: Tensor

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The tensor."""
        return (self.x,)

    @property
    def shape(self) -> Shape:
        """That of the places."""
        return tuple(self.places.shape)

    def reference(self, *tensors: Tensor) -> Tensor:
        """PyTorch's own indexing."""
        return tensors[0].reshape(-1)[self.places]

    def emit(self, kernel: Kernel) -> None:
        """One read through a table for each element."""
        (x,), y = kernel.inputs, kernel.output
        coordinates = np.unravel_index(self.places.numpy().reshape(-1), x.shape)
        offsets = sum(own * stride for own, stride in zip(coordinates, x.strides, strict=True))
        table = np.asarray(offsets, dtype=np.int64)
        places = kernel.constant(table.astype(smallest_unsigned(int(table.max()) + 1)))
        with nest(kernel.code, self.shape, [contiguous(self.shape), y.strides]) as (number, target):
            kernel.code.add(f"y[{target}] = {x.name}[{places}[{number}]];")

    def describe(self) -> str:
        """How many."""
        return f"{self.places.numel()} elements of {torch.Size(self.x.shape).numel()}"


def _gathered(build: Builder, x: Value, choose: Callable[[Tensor], Tensor]) -> Value:
    """What `choose` takes from `x`: it is applied to a tensor of the places."""
    every = torch.arange(torch.Size(x.shape).numel())
    places = choose(every.reshape(x.shape)).contiguous()
    if places.reshape(-1).equal(every):
        return build.reshaped(x, tuple(places.shape))
    return build.add(Gather(build.computed(x), places))


@lowers(aten.index, integers=True)
def _index(build: Builder, x: Value, indices: Sequence[Value | None]) -> Value:
    chosen = [None if own is None else constant_of(own, "index").tensor for own in indices]
    return _gathered(build, x, lambda places: aten.index(places, chosen))


@lowers(aten.index_select, integers=True)
def _index_select(build: Builder, x: Value, dim: int, index: Value) -> Value:
    chosen = constant_of(index, "index").tensor
    return _gathered(build, x, lambda places: places.index_select(dim, chosen))


@lowers(aten.gather, integers=True)
def _gather(build: Builder, x: Value, dim: int, index: Value, *, sparse_grad: bool = False) -> Value:
    del sparse_grad
    chosen = constant_of(index, "index").tensor
    return _gathered(build, x, lambda places: places.gather(dim, chosen))


@lowers(aten.roll, integers=True)
def _roll(build: Builder, x: Value, shifts: Sequence[int], dims: Sequence[int] = ()) -> Value:
    return _gathered(build, x, lambda places: aten.roll(places, shifts, dims))


@lowers(aten.flip, integers=True)
def _flip(build: Builder, x: Value, dims: Sequence[int]) -> Value:
    return _gathered(build, x, lambda places: places.flip(tuple(dims)))
