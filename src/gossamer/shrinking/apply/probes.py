"""Probes: random inputs of the example's shapes, and one of another batch size, length and image size.

Floating-point inputs are unit normal, so that an example of zeros, ones or NaN is no worse than another. Indices are
drawn from the whole embedding table that they index, where they index one; other integers from the range of the
example. Masks have the share of ones that the example has; at other sizes they repeat it.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from gossamer.errors import GossamerError
from gossamer.example import Call, restoring
from gossamer.shrinking.apply.dims import Axis, Dim, changed_dims, coupled, dims_of, groups_of_dims, sizes_at

__all__ = [
    "CHEAP",
    "IndexRanges",
    "OtherSizes",
    "Probe",
    "at_other_sizes",
    "at_size_one",
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


class OtherSizes(NamedTuple):
    """A call at other sizes than those of the example, with its outputs, and the numbers that its sizes follow."""

    call: Call
    outputs: list[Tensor]
    axes: dict[Axis, int]


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

    def drawn(self, tensor: Tensor, shape: list[int], generator: torch.Generator) -> Tensor:
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
    return max(tensor.numel() for tensor in call.tensors()) < CHEAP


def random_calls(call: Call, ranges: IndexRanges) -> list[Call]:
    """Random inputs of the example's shapes: unit normal ones, and ones of its mean and standard deviation."""
    generator = torch.Generator().manual_seed(0)
    return [_random(call, generator, ranges), _random(call, generator, ranges, like_example=True)]


def at_other_sizes(model: nn.Module, call: Call, ranges: IndexRanges) -> OtherSizes | None:
    """A random call with another batch size, length and image size, as far as the model accepts them.

    Dimensions that have one size in the example are changed together: first the batch, then the other sizes. These
    become larger where that is cheap, else smaller. If the input of a linear layer has another width then, the model
    flattens them into units: from there on only the next size is worth a forward pass, since the width may still be the
    same, and a single sample tells whether it is. At last, two sizes that cannot change alone are changed together.
    """
    generator = torch.Generator().manual_seed(1)
    axes: dict[Axis, int] = {}
    accepted: dict[Dim, int] = {}
    found: Probe | None = None
    flattened: set[Dim] = set()
    large = not is_cheap(call)
    for dims in groups_of_dims(call):
        if any(dim in accepted for dim in dims):
            continue
        size = dims[0].size
        others = (size // 2, size + 1, 2 * size) if large else (2 * size, size + 1, size // 2)
        for other in dict.fromkeys((size + 1,) if dims[0].is_batch else others):
            flattens = not flattened.isdisjoint(dims)
            if other == 0 or (flattens and other != size + 1):
                continue
            tried = {**accepted, **dict.fromkeys(dims, other)}
            single = {**tried, **{dim: 1 for dim in accepted if dim.is_batch}}
            candidate = resized(call, generator, ranges, tried)
            try:
                if flattens and single != tried:
                    _refuse_other_width(model, resized(call, generator, ranges, single))
                accepted, found = tried, Probe(candidate, run(model, candidate))
                axes[Axis(dims)] = other
                break
            except GossamerError as error:
                flattened.update(dims if _is_in_linear_layer(error) else ())
    while True:
        waiting = [dims for dims in groups_of_dims(call) if accepted.keys().isdisjoint(dims)]
        for axis in coupled(waiting, axes):
            number = axis.number // 2 if large and axis.scaled and axis.number > 1 else axis.number + 1
            tried = {**accepted, **sizes_at({**axes, axis: number})}
            probe = attempt(model, resized(call, generator, ranges, tried))
            if probe is not None:
                accepted, found = tried, probe
                axes[axis] = number
                break
        else:
            return None if found is None else OtherSizes(found.call, found.outputs, axes)


def at_size_one(model: nn.Module, call: Call, other: Call, ranges: IndexRanges) -> list[Probe]:
    """Random calls in which the batch, or every other dimension that may change, has the size one, if accepted.

    `other` is a call of other sizes that the model accepts. The exporter takes a symbolic size to be at least two.
    """
    generator = torch.Generator().manual_seed(2)
    free = [dim for dim in dims_of(call) if dim.dim in changed_dims(call, other)[dim.place]]
    groups = [[dim for dim in free if dim.is_batch], [dim for dim in free if not dim.is_batch]]
    ones = [resized(call, generator, ranges, dict.fromkeys(dims, 1)) for dims in groups if dims]
    probes = [attempt(model, one) for one in ones]
    return [probe for probe in probes if probe is not None]


def resized(call: Call, generator: torch.Generator, ranges: IndexRanges, sizes: Mapping[Dim, int]) -> Call:
    """A random call in which these dimensions have other sizes."""
    shapes = [list(tensor.shape) for tensor in call.tensors()]
    for dim, size in sizes.items():
        shapes[dim.place][dim.dim] = size
    return _random(call, generator, ranges, shapes)


def attempt(model: nn.Module, call: Call) -> Probe | None:
    """A call with its outputs, or None if the model refuses it."""
    try:
        return Probe(call, run(model, call))
    except GossamerError:
        return None


def _refuse_other_width(model: nn.Module, call: Call) -> None:
    """Raise the error of a call that fails in a linear layer; other errors may come from a batch of one."""
    try:
        run(model, call)
    except GossamerError as error:
        if _is_in_linear_layer(error):
            raise


def _is_in_linear_layer(error: GossamerError) -> bool:
    """Whether a forward failed in that of an `nn.Linear`."""
    cause = error.__cause__
    frames = [] if cause is None else traceback.walk_tb(cause.__traceback__)
    return any(frame.f_code is nn.Linear.forward.__code__ for frame, _ in frames)


def _random(
    call: Call,
    generator: torch.Generator,
    ranges: IndexRanges,
    shapes: list[list[int]] | None = None,
    *,
    like_example: bool = False,
) -> Call:
    """The call with random tensors, of these shapes instead of those of the example."""
    waiting = iter(shapes or [list(tensor.shape) for tensor in call.tensors()])

    def draw(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        shape = next(waiting)
        return _drawn(leaf, shape, generator, ranges, like_example) if leaf.numel() else leaf

    args, kwargs = pytree.tree_map(draw, (call.args, call.kwargs))
    return Call(args, kwargs)


def _drawn(
    leaf: Tensor, shape: list[int], generator: torch.Generator, ranges: IndexRanges, like_example: bool
) -> Tensor:
    if leaf.dtype == torch.bool and list(leaf.shape) != shape:  # so that no row of a mask of attention is all false
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
    mean, scale = leaf.double().mean(), leaf.double().std(correction=0)
    if like_example and bool(torch.isfinite(scale)) and bool(scale > 0):
        return noise * scale.to(leaf) + mean.to(leaf)
    return noise
