"""Which integer attributes of the user's modules are numbers to compute with, not only sizes of units.

`self.width` in `x[:, : self.width]` is a number of positions, in `x.shape[1] > self.width` it is compared with one, and
in `x * self.width` it is a factor. Such an attribute keeps its value, also if it is the size of a dimension that loses
units: at some length the outputs would be others. To see these uses, the forward runs once with integers that note what
they meet, in which the sizes of tensors are integers that remember their dimension.

Where an attribute meets the size of a dimension of units, it says nothing about other lengths: then it is recorded with
that dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.utils import _pytree as pytree

from gossamer.example import Call
from gossamer.shrinking.trace.attributes import SIZES, Attribute, ForwardRecorder

__all__ = ["NumberUse", "number_uses"]

_READS_SIZES = {Tensor.shape.__get__, Tensor.size}  # type: ignore[attr-defined]

_COUNTS = {
    *("group_norm", "layer_norm", "rms_norm", "chunk", "tensor_split", "repeat", "tile", "repeat_interleave"),
    *("new_zeros", "new_ones", "new_empty", "new_full", "ones", "empty", "full", "one_hot", "pixel_shuffle"),
}
"""Functions whose integers are sizes or numbers of parts, besides those of `SIZES`."""


@dataclass(frozen=True)
class NumberUse:
    """In the forward of `module`, attributes are used as numbers, beside dimension `dim` of a tensor of this shape.

    `shape` is None if that has nothing to do with a dimension, as for a factor.
    """

    module: str
    attributes: frozenset[Attribute]
    shape: tuple[int, ...] | None = None
    dim: int = 0


def number_uses(model: nn.Module, call: Call) -> list[NumberUse]:
    """The uses of integer attributes as numbers; none if the forward does not run with integers that note them."""
    recorder = _Recorder(model)

    def replace(attribute: Attribute, value: int) -> int:
        number: int = _Integer.of(value, frozenset({attribute}), recorder)
        return number

    return list(dict.fromkeys(recorder.uses)) if recorder.watches(call, replace) else []


class _Recorder(ForwardRecorder):
    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.uses: list[NumberUse] = []

    def note(self, number: Any, meets: _Size | None = None) -> None:
        """Note a use of a number, which meets the size of a dimension or something else."""
        if meets is None:
            self.uses.append(NumberUse(self.executing, number.attributes))
        else:
            self.uses.append(NumberUse(self.executing, number.attributes, meets.shape, meets.dim))

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        if name in ("__getitem__", "__setitem__"):
            for dim, number in _numbers_in_index(args[0], args[1]):
                self.note(number, _Size.of(args[0].size(dim), tuple(args[0].shape), dim))
        elif name == "narrow" and isinstance(args[1], int):
            for number in (n for n in (*args[2:], *kwargs.values()) if isinstance(n, _Number)):
                self.note(number, _Size.of(0, tuple(args[0].shape), args[1] % args[0].dim()))
        elif name not in SIZES and name not in _COUNTS:
            for leaf in pytree.tree_leaves((args, kwargs)):
                if isinstance(leaf, _Number):
                    self.note(leaf)
        args, kwargs = pytree.tree_map(_plain, (args, kwargs))
        result = func(*args, **kwargs)
        if func not in _READS_SIZES:
            return result
        shape = tuple(args[0].shape)
        if isinstance(result, tuple):
            return tuple(_Size.of(size, shape, dim) for dim, size in enumerate(shape))
        return _Size.of(result, shape, (args[1] if len(args) > 1 else kwargs.get("dim", 0)) % len(shape))


class _Number:
    """A number that is computed from attributes."""

    attributes: frozenset[Attribute]
    recorder: _Recorder

    @classmethod
    def of(cls, value: Any, attributes: frozenset[Attribute], recorder: _Recorder) -> Any:
        made = cls(value)  # type: ignore[call-arg]
        made.attributes, made.recorder = attributes, recorder
        return made

    def __float__(self) -> float:
        self.recorder.note(self)
        return super().__float__()  # type: ignore[misc, no-any-return]


class _Integer(_Number, int):
    __hash__ = int.__hash__


class _Real(_Number, float):
    __hash__ = float.__hash__


_KINDS: dict[type, type[_Number]] = {int: _Integer, float: _Real}


class _Size(int):
    """The size of a dimension of a tensor, or a number that is computed from it."""

    shape: tuple[int, ...]
    dim: int
    __hash__ = int.__hash__

    @classmethod
    def of(cls, value: int, shape: tuple[int, ...], dim: int) -> _Size:
        made = cls(value)
        made.shape, made.dim = shape, dim
        return made


def _of_attributes(kind: type, name: str) -> Callable[[Any, Any], Any]:
    plain = getattr(kind, name)

    def apply(own: Any, *others: Any) -> Any:
        result = plain(own, *others)
        if result is NotImplemented:
            return result
        for other in others:
            if isinstance(other, _Size):
                own.recorder.note(own, other)
        attributes = own.attributes.union(*(o.attributes for o in others if isinstance(o, _Number)))
        made: type[_Number] | None = _KINDS.get(type(result))
        return result if made is None else made.of(result, attributes, own.recorder)

    return apply


def _of_size(name: str) -> Callable[[Any, Any], Any]:
    plain = getattr(int, name)

    def apply(own: Any, *others: Any) -> Any:
        if any(isinstance(other, _Number) for other in others):
            return NotImplemented  # the other operand notes it
        result = plain(own, *others)
        return _Size.of(result, own.shape, own.dim) if type(result) is int else result

    return apply


_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
for _name in (*_BINARY, *(f"r{_name}" for _name in _BINARY), "neg", "abs", *_COMPARISONS):
    _method = f"__{_name}__"
    setattr(_Size, _method, _of_size(_method))
    for _kind, _noting in _KINDS.items():
        setattr(_noting, _method, _of_attributes(_kind, _method))


def _numbers_in_index(tensor: Tensor, index: Any) -> Iterator[tuple[int, _Number]]:
    """The numbers in an index, each with the dimension that it indexes."""
    parts = index if isinstance(index, tuple) else (index,)
    taken = sum(part is not None and part is not Ellipsis for part in parts)
    dim = 0
    for part in parts:
        if part is Ellipsis:
            dim += tensor.dim() - taken
        elif part is not None:
            bounds = (part.start, part.stop, part.step) if isinstance(part, slice) else (part,)
            yield from ((dim, bound) for bound in bounds if isinstance(bound, _Number))
            dim += 1


def _plain(leaf: Any) -> Any:
    if isinstance(leaf, slice):
        return slice(_plain(leaf.start), _plain(leaf.stop), _plain(leaf.step))
    if isinstance(leaf, _Real):
        return float.__float__(leaf)
    return int.__int__(leaf) if isinstance(leaf, _Integer | _Size) else leaf
