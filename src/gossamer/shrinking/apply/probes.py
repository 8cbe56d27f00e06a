"""Probes: random inputs, of the example's shapes or of others.

Floating-point inputs are unit normal, so that an example of zeros, ones or NaN is no worse than another. Indices are
drawn from the whole embedding table that they index, where they index one; other integers from the range of the
example. Masks have the share of ones that the example has; at other sizes they repeat it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from gossamer.errors import GossamerError
from gossamer.example import Call, restoring
from gossamer.shrinking.apply.dims import Dim, elements, shapes_at

__all__ = [
    "CHEAP",
    "IndexRanges",
    "Probe",
    "attempt",
    "is_cheap",
    "random_calls",
    "resized",
    "run",
]

CHEAP = 2**16  # elements of an input that is tried only because a forward may branch on its size


class Probe(NamedTuple):
    """A call that the model accepts, with its outputs; in training mode after seeding all generators with `seed`."""

    call: Call
    outputs: list[Tensor]
    seed: int = 0


class IndexRanges(TorchFunctionMode):
    """Records, while a model runs, how many rows the embedding tables have that are indexed by its inputs.

    Also which inputs are the offsets of bags.
    """

    def __init__(self) -> None:
        super().__init__()
        self._rows: dict[int, int] = {}
        self._offsets: set[int] = set()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        if func in (functional.embedding, functional.embedding_bag) and len(args) > 1 and args[0].numel():
            place = _place(args[0])
            self._rows[place] = min(args[1].size(0), self._rows.get(place, args[1].size(0)))
        offsets = args[2] if len(args) > 2 else (kwargs or {}).get("offsets")
        if func is functional.embedding_bag and isinstance(offsets, Tensor):
            self._offsets.add(_place(offsets))
        return func(*args, **(kwargs or {}))

    def of(self, tensor: Tensor) -> tuple[int, int]:
        """The valid indices `[low, high)` as far as they are known: the rows of a table, or what the example shows."""
        low, high = min(0, int(tensor.min())), int(tensor.max()) + 1
        return low, max(high, low + 1, self._rows.get(_place(tensor), 0))

    def drawn(self, tensor: Tensor, shape: Sequence[int], generator: torch.Generator) -> Tensor:
        """Random indices of a shape; offsets as they are, since PyTorch does not check that they are in order."""
        if _place(tensor) in self._offsets:
            return tensor
        return torch.randint(*self.of(tensor), shape, generator=generator).to(tensor)


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def run(model: nn.Module, call: Call) -> list[Tensor]:
    """The outputs of one call, which leaves the model as it is: the next one starts from the same state."""
    with restoring(model):
        return call.run(model)


def is_cheap(call: Call) -> bool:
    """Whether the inputs are so small that a forward pass takes little time beside an export."""
    return elements(call) < CHEAP


def random_calls(call: Call, ranges: IndexRanges) -> list[Call]:
    """Random inputs of the example's shapes: unit normal ones, and ones of its mean and standard deviation."""
    generator = torch.Generator().manual_seed(0)
    return [_random(call, generator, ranges, {}), _random(call, generator, ranges, {}, like_example=True)]


def resized(call: Call, generator: torch.Generator, ranges: IndexRanges, sizes: Mapping[Dim, int]) -> Call:
    """A random call in which these dimensions, and integers, have other sizes."""
    return _random(call, generator, ranges, sizes)


def attempt(model: nn.Module, call: Call) -> Probe | None:
    """A call with its outputs, or None if the model refuses it."""
    try:
        return Probe(call, run(model, call))
    except GossamerError:
        return None


def _random(
    call: Call,
    generator: torch.Generator,
    ranges: IndexRanges,
    sizes: Mapping[Dim, int],
    *,
    like_example: bool = False,
) -> Call:
    """The call with random tensors, some dimensions of which have other sizes than in the example."""
    shapes = shapes_at(call, sizes)
    waiting, integers = iter(shapes), iter(shapes[len(call.tensors()) :])

    def draw(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return _drawn(leaf, next(waiting), generator, ranges, like_example)
        return next(integers)[0] if type(leaf) is int else leaf

    args, kwargs = pytree.tree_map(draw, (call.args, call.kwargs))
    return Call(args, kwargs)


def _drawn(
    leaf: Tensor, shape: Sequence[int], generator: torch.Generator, ranges: IndexRanges, like_example: bool
) -> Tensor:
    if not leaf.numel() and not leaf.is_floating_point() and not leaf.is_complex():
        return leaf.new_zeros(shape)  # an index or a mask of which the example shows nothing
    if leaf.dtype == torch.bool and leaf.shape != shape:  # so that no row of a mask of attention is all false
        return leaf.repeat([-(-new // old) for new, old in zip(shape, leaf.shape, strict=True)])[
            tuple(slice(new) for new in shape)
        ]
    if leaf.dtype == torch.bool:
        return leaf.flatten()[torch.randint(leaf.numel(), shape, generator=generator).to(leaf.device)]
    if leaf.is_complex():
        return torch.randn(shape, dtype=leaf.dtype, generator=generator).to(leaf.device)
    if not leaf.is_floating_point():
        return ranges.drawn(leaf, shape, generator)
    noise = torch.randn(shape, generator=generator).to(leaf)
    if not like_example or not leaf.numel():
        return noise
    mean, scale = leaf.double().mean(), leaf.double().std(correction=0)
    return noise * scale.to(leaf) + mean.to(leaf) if torch.isfinite(scale) and scale > 0 else noise
