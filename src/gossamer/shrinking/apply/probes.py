"""Probes: random inputs of the example's shapes, and inputs of other batch sizes, lengths and image sizes.

Floating-point inputs are unit normal, so that an example of zeros, ones or NaN is no worse than another. Indices are
drawn from the whole embedding table that they index, where they index one; other integers from the range of the
example. Masks have the share of ones that the example has.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from gossamer.errors import GossamerError
from gossamer.example import Call, restoring

__all__ = [
    "IndexRanges",
    "Probe",
    "at_far_sizes",
    "at_least_two",
    "at_other_sizes",
    "at_size_one",
    "changed_dims",
    "is_cheap",
    "random_calls",
    "run",
]

_CHEAP = 2**16  # elements of an input that is tried only because a forward may branch on its size
_MOST_GROUPS = 8  # of dimensions that are tried at another size, each with a few forward passes at most


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
    return max(tensor.numel() for tensor in call.tensors()) < _CHEAP


def random_calls(call: Call, ranges: IndexRanges) -> list[Call]:
    """Random inputs of the example's shapes: unit normal ones, and ones of its mean and standard deviation."""
    generator = torch.Generator().manual_seed(0)
    return [_random(call, generator, ranges), _random(call, generator, ranges, like_example=True)]


def at_other_sizes(model: nn.Module, call: Call, ranges: IndexRanges) -> Probe | None:
    """A random call with another batch size, length and image size, as far as the model accepts them.

    Dimensions that have one size in the example are changed together: first the batch, then the other sizes. These
    become larger where that is cheap, else smaller. If the input of a linear layer has another width then, the model
    flattens them into units: from there on only the next size is worth a forward pass, since the width may still be the
    same, and a single sample tells whether it is.
    """
    generator = torch.Generator().manual_seed(1)
    accepted: dict[_Dim, int] = {}
    found: Probe | None = None
    flattened: set[_Dim] = set()
    large = not is_cheap(call)
    for dims in _groups_of_dims(call):
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
            candidate = _resized(call, generator, ranges, tried)
            try:
                if flattens and single != tried:
                    _refuse_other_width(model, _resized(call, generator, ranges, single))
                accepted, found = tried, Probe(candidate, run(model, candidate))
                break
            except GossamerError as error:
                flattened.update(dims if _is_in_linear_layer(error) else ())
    return found


def at_far_sizes(model: nn.Module, call: Call, other: Call, ranges: IndexRanges) -> Probe | None:
    """A random call with four times the length or image size, if that is cheap: the forward may have a branch there.

    `other` is a call of other sizes that the model accepts.
    """
    free = [d for d in _dims(call) if d.dim in changed_dims(call, other)[d.place] and not d.is_batch]
    sizes = {dim: 4 * dim.size + 1 for dim in free}
    growth = max((math.prod(5 for d in free if d.place == dim.place) for dim in free), default=0)
    if not free or growth * max(tensor.numel() for tensor in call.tensors()) > _CHEAP:
        return None
    return _try(model, _resized(call, torch.Generator().manual_seed(3), ranges, sizes))


def at_size_one(model: nn.Module, call: Call, other: Call, ranges: IndexRanges) -> list[Probe]:
    """Random calls in which the batch, or every other dimension that may change, has the size one, if accepted.

    `other` is a call of other sizes that the model accepts. The exporter takes a symbolic size to be at least two.
    """
    generator = torch.Generator().manual_seed(2)
    free = [dim for dim in _dims(call) if dim.dim in changed_dims(call, other)[dim.place]]
    groups = [[dim for dim in free if dim.is_batch], [dim for dim in free if not dim.is_batch]]
    ones = [_resized(call, generator, ranges, dict.fromkeys(dims, 1)) for dims in groups if dims]
    probes = [_try(model, one) for one in ones]
    return [probe for probe in probes if probe is not None]


def changed_dims(call: Call, other: Call) -> list[frozenset[int]]:
    """For each tensor of a call, the dimensions that have another size in the other call."""
    return [
        frozenset(d for d in range(own.dim()) if own.size(d) != new.size(d))
        for own, new in zip(call.tensors(), other.tensors(), strict=True)
    ]


def at_least_two(call: Call, dims: Sequence[Set[int]]) -> Call:
    """The call with every size of one repeated along these dimensions of each tensor."""
    waiting = iter(dims)

    def repeat(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            for dim in sorted(next(waiting)):
                leaf = torch.cat([leaf, leaf], dim) if leaf.size(dim) == 1 else leaf
        return leaf

    args, kwargs = pytree.tree_map(repeat, (call.args, call.kwargs))
    return Call(args, kwargs)


class _Dim(NamedTuple):
    """A dimension of a tensor of the call."""

    place: int
    dim: int
    size: int
    is_batch: bool


def _dims(call: Call) -> list[_Dim]:
    tensors = call.tensors()
    batch = next((tensor.size(0) for tensor in tensors if tensor.dim()), 0)
    return [
        _Dim(place, dim, size, is_batch=dim == 0 and size == batch)
        for place, tensor in enumerate(tensors)
        for dim, size in enumerate(tensor.shape)
    ]


def _groups_of_dims(call: Call) -> list[list[_Dim]]:
    """Dimensions to change together: the batch; all others of equal size; those of equal size at one position."""
    keys: list[Callable[[_Dim], object]] = [
        lambda dim: "batch" if dim.is_batch else None,
        lambda dim: None if dim.is_batch else dim.size,
        lambda dim: None if dim.is_batch else (dim.size, dim.dim),
    ]
    groups = []
    for key in keys:
        found: dict[object, list[_Dim]] = {}
        for dim in _dims(call):
            if key(dim) is not None:
                found.setdefault(key(dim), []).append(dim)
        groups += list(found.values())
    return groups[:_MOST_GROUPS]


def _resized(call: Call, generator: torch.Generator, ranges: IndexRanges, sizes: Mapping[_Dim, int]) -> Call:
    """A random call in which these dimensions have other sizes."""
    shapes = [list(tensor.shape) for tensor in call.tensors()]
    for dim, size in sizes.items():
        shapes[dim.place][dim.dim] = size
    return _random(call, generator, ranges, shapes)


def _try(model: nn.Module, call: Call) -> Probe | None:
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
