"""What a forward does with sizes: where it compares them, and whether a graph can take two sizes of the inputs.

A forward that compares a size with a number, `if x.shape[1] > 100`, or divides it by one, may compute something else on
the other side of that number. To know the number, the forward runs with sizes that note what they meet.

A graph with symbolic sizes refuses other sizes where the forward has a branch on a size, and where it turns a size into
a plain integer, `int(h / 2)`: the exporter takes both for granted. To see that before the export, which takes several
times as long as one at fixed sizes, the forward runs at both sizes, in which every size is an int that notes its
conversion; and the functions of PyTorch that the forward calls are compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from gossamer.errors import GossamerError
from gossamer.example import Call, evaluating, restoring

__all__ = ["compared_sizes", "takes_both"]

_READS_SIZES = {Tensor.shape.__get__, Tensor.size}  # type: ignore[attr-defined]


def compared_sizes(model: nn.Module, call: Call) -> list[tuple[float, float]]:
    """Numbers that are computed from sizes, each with the number that it is compared with or divided by."""
    try:
        return list(dict.fromkeys(_Recorder.watch(model, call).compared))
    except GossamerError:  # a forward that does not run with such sizes
        return []


def takes_both(model: nn.Module, call: Call, other: Call) -> bool:
    """Whether nothing in the forward is known to bind a graph to the sizes of one of two calls."""
    try:
        first, second = _Recorder.watch(model, call), _Recorder.watch(model, other)
    except GossamerError:  # a forward that does not run with such sizes
        return True
    return not first.converts and not second.converts and first.functions == second.functions


class _Recorder(TorchFunctionMode):
    """Records the functions that return tensors, and what becomes of the sizes that tensors have."""

    def __init__(self) -> None:
        super().__init__()
        self.functions: list[Callable[..., Any]] = []
        self.compared: list[tuple[float, float]] = []
        self.converts = False

    @classmethod
    def watch(cls, model: nn.Module, call: Call) -> _Recorder:
        """What one call of a model does."""
        recorder = cls()
        with evaluating(model), restoring(model), recorder:
            call.run(model)
        return recorder

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        result = func(*args, **(kwargs or {}))
        if func in _READS_SIZES:
            return tuple(_noting(n, self) for n in result) if isinstance(result, tuple) else _noting(result, self)
        if any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(result)):
            self.functions.append(func)
        return result


class _Noting:
    """A number that is computed from sizes; what is computed from it is one too."""

    recorder: _Recorder

    def __int__(self) -> int:
        self.recorder.converts = True
        return super().__int__()  # type: ignore[misc, no-any-return]


class _Size(_Noting, int):
    __hash__ = int.__hash__


class _Quotient(_Noting, float):
    __hash__ = float.__hash__


def _noting(value: Any, recorder: _Recorder) -> Any:
    """The number as one that notes its conversion; anything else as it is."""
    if type(value) not in (int, float):
        return value
    made = _Size(value) if isinstance(value, int) else _Quotient(value)
    made.recorder = recorder
    return made


def _computed(kind: type[int] | type[float], name: str) -> Callable[..., Any]:
    plain = getattr(kind, name)
    divides = name in ("__floordiv__", "__mod__", "__truediv__")

    def apply(own: Any, *others: Any) -> Any:
        if divides:
            _note(own, *others)
        return _noting(plain(own, *others), own.recorder)

    return apply


def _compared(kind: type[int] | type[float], name: str) -> Callable[..., Any]:
    plain = getattr(kind, name)

    def apply(own: Any, other: Any) -> Any:
        _note(own, other)
        return plain(own, other)

    return apply


def _note(own: Any, other: Any) -> None:
    """Note two numbers that are compared; if both are sizes, either way round."""
    if isinstance(other, int | float) and type(other) is not bool and own.real > 0 and other.real > 0:
        own.recorder.compared.append((float(own.real), float(other.real)))
        if isinstance(other, _Noting):
            own.recorder.compared.append((float(other.real), float(own.real)))


_OPERATORS = (
    "add",
    "radd",
    "sub",
    "rsub",
    "mul",
    "rmul",
    "truediv",
    "rtruediv",
    "floordiv",
    "rfloordiv",
    "mod",
    "rmod",
)
for _kind, _noted in ((int, _Size), (float, _Quotient)):
    for _name in (*_OPERATORS, "pow", "neg", "round", "ceil", "floor", "trunc"):
        setattr(_noted, f"__{_name}__", _computed(_kind, f"__{_name}__"))
    for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(_noted, f"__{_name}__", _compared(_kind, f"__{_name}__"))
