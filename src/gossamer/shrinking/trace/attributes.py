"""Which integer attributes of the user's modules become sizes of which tensors.

`self.num_heads` in `x.view(b, t, self.num_heads, -1)` is the size of dimension 2 of the result. To see that, and not
only that two integers are equal, the forward runs once with every integer attribute replaced by an `AttributeSize`:
an int that remembers the attribute, or the arithmetic on attributes, that it comes from.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn.modules import module as hooks
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from gossamer.errors import GossamerError
from gossamer.example import Call, evaluating, restoring

__all__ = ["SIZES", "Attribute", "AttributeSize", "ForwardRecorder", "SizeUse", "size_uses"]

Attribute = tuple[str, str]
"""The path of a module, and the name of one of its attributes."""

_Expression = Callable[[Mapping[Attribute, int]], int]


class AttributeSize(int):
    """An integer with the expression in attributes that it is the value of."""

    attributes: frozenset[Attribute]
    expression: _Expression

    @classmethod
    def of(cls, value: int, attributes: frozenset[Attribute], expression: _Expression) -> AttributeSize:
        """An integer that is the value of this expression."""
        made = cls(value)
        made.attributes, made.expression = attributes, expression
        return made

    def __hash__(self) -> int:
        raise TypeError("not hashable, so that no cache returns what was computed from an equal integer")

    def __eq__(self, other: object) -> bool:
        return int(self) == other


def _operator(function: Callable[[int, int], int]) -> Callable[[AttributeSize, Any], Any]:
    """Arithmetic on two attributes; with another integer it gives a plain one, since that may be a size of a tensor."""

    def apply(own: AttributeSize, other: Any) -> Any:
        if not isinstance(other, AttributeSize):
            return getattr(int, function_name)(own, other)
        left, right = own.expression, other.expression
        return AttributeSize.of(
            function(int(own), int(other)),
            own.attributes | other.attributes,
            lambda values: function(left(values), right(values)),
        )

    function_name = f"__{function.__name__}__"
    return apply


for _name in ("add", "sub", "mul", "floordiv", "mod"):
    _function = getattr(operator, _name)
    setattr(AttributeSize, f"__{_name}__", _operator(_function))


@dataclass(frozen=True)
class SizeUse:
    """In the forward of `module`, dimension `dim` of a tensor of this shape has a size computed from attributes.

    The tensor is made from one of the shape `source`; `()` if it is created.
    """

    module: str
    source: tuple[int, ...]
    shape: tuple[int, ...]
    dim: int
    size: AttributeSize


def size_uses(model: nn.Module, call: Call) -> list[SizeUse]:
    """The sizes that the forward computes from integer attributes of its modules; none if it cannot run with them."""
    recorder = _Recorder(model)
    return recorder.uses if recorder.watches(call, _size) else []


def _size(attribute: Attribute, value: int) -> AttributeSize:
    return AttributeSize.of(value, frozenset({attribute}), operator.itemgetter(attribute))


class ForwardRecorder(TorchFunctionMode):
    """Runs a forward with other objects in place of integer attributes, and follows which module is executing."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._model = model
        self._paths = {id(module): path for path, module in model.named_modules()}
        self._executing: list[str] = [""]

    @property
    def executing(self) -> str:
        """The path of the module whose forward is executing."""
        return self._executing[-1]

    def watches(self, call: Call, replace: Callable[[Attribute, int], int]) -> bool:
        """Run a call; false if the forward does not run so."""
        model = self._model
        try:
            with evaluating(model), _attributes_replaced(model, replace), restoring(model), self.watching(), self:
                call.run(model)
        except GossamerError:
            return False
        return True

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Follow which module executes."""
        before = hooks.register_module_forward_pre_hook(self._enter)
        after = hooks.register_module_forward_hook(self._leave, always_call=True)
        try:
            yield
        finally:
            before.remove()
            after.remove()

    def _enter(self, module: nn.Module, inputs: Any) -> None:
        del inputs
        self._executing.append(self._paths.get(id(module), ""))

    def _leave(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        del module, inputs, outputs
        self._executing.pop()


class _Recorder(ForwardRecorder):
    """Records the tensors whose shapes are given by attributes, with the module that is executing."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.uses: list[SizeUse] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        kwargs = kwargs or {}
        sizes = SIZES.get(getattr(func, "__name__", ""))
        given = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, AttributeSize)]
        if not given:
            return func(*args, **kwargs)
        plain_args, plain_kwargs = pytree.tree_map(_plain, (args, kwargs))
        result = func(*plain_args, **plain_kwargs)
        source = tuple(args[0].shape) if args and isinstance(args[0], Tensor) else ()
        for shape, dim, size in sizes(result, args, kwargs) if sizes is not None else ():
            if isinstance(size, AttributeSize):
                self.uses.append(SizeUse(self.executing, source, tuple(shape), dim, size))
        return result


def _plain(leaf: Any) -> Any:
    return int(leaf) if isinstance(leaf, AttributeSize) else leaf


@contextmanager
def _attributes_replaced(model: nn.Module, replace: Callable[[Attribute, int], int]) -> Iterator[None]:
    """Every public integer attribute replaced."""
    replaced: list[tuple[nn.Module, str, int]] = []
    for path, module in model.named_modules():
        for name, value in list(vars(module).items()):
            if type(value) is int and not name.startswith("_"):
                replaced.append((module, name, value))
                vars(module)[name] = replace((path, name), value)
    try:
        yield
    finally:
        for module, name, value in replaced:
            vars(module)[name] = value


_Sizes = Iterator[tuple[Any, int, Any]]


def _given_shape(result: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Sizes:
    """`view`, `reshape`, `expand` and `new_zeros`: the arguments behind the tensor are the shape of the result."""
    return _created_shape(result, args[1:], kwargs)


def _created_shape(result: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Sizes:
    """`zeros` and `full`: the shape is one argument, or all of those by position."""
    first = args[0] if args else kwargs.get("size", ())
    for dim, size in enumerate(first if isinstance(first, list | tuple) else args):
        yield result.shape, dim, size


def _unflattened(result: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Sizes:
    dim = kwargs.get("dim", args[1] if len(args) > 1 else 0) % args[0].dim()
    for place, size in enumerate(kwargs.get("sizes", args[2] if len(args) > 2 else ())):
        yield result.shape, dim + place, size


def _split(result: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Sizes:
    sizes = args[1] if len(args) > 1 else kwargs.get("split_size", kwargs.get("split_size_or_sections"))
    dim = kwargs.get("dim", args[2] if len(args) > 2 else 0)
    for place, part in enumerate(result):
        if isinstance(part, Tensor):
            yield part.shape, dim % part.dim(), sizes[place] if isinstance(sizes, list | tuple) else sizes


SIZES: dict[str, Callable[[Any, tuple[Any, ...], Mapping[str, Any]], _Sizes]] = {
    "view": _given_shape,
    "reshape": _given_shape,
    "expand": _given_shape,
    "unflatten": _unflattened,
    "split": _split,
    "split_with_sizes": _split,
    **dict.fromkeys(("zeros", "ones", "full", "empty"), _created_shape),
    **dict.fromkeys(("new_zeros", "new_ones", "new_full", "new_empty"), _given_shape),
}
"""Operations with sizes among their arguments: the shape of a result, a dimension of it, and the size given for it."""
