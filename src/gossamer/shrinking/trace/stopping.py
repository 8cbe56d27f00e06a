"""Stop an export with symbolic sizes that is of no use, or that would take minutes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from gossamer.errors import GossamerError
from gossamer.example import Call

__all__ = ["Stopping"]

_LONGEST_SIZE = 24  # operations; a length after four convolutions has about ten
_LONGEST_QUOTIENT = 7  # operations, if a divisor is symbolic; the width of a patch of an image has about five


class Stopping(TorchFunctionMode):
    """Stops an export in which a symbolic size becomes a long expression: from there on it takes minutes.

    Also stops where the guards so far refuse `other`, a call whose symbolic sizes are others than those of `call`.
    """

    def __init__(self, call: Call, other: Call) -> None:
        super().__init__()
        self._sizes = _other_sizes(call, other)
        self._environment: Any = None
        self._checked: set[Any] = set()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        for guard in self._environment.guards if self._environment is not None else ():
            if self._is_new(guard.expr) and _refuses(guard.expr, self._environment, self._sizes):
                raise GossamerError(f"the graph would need {guard.expr}")
        result = func(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(result):
            for size in leaf.shape if isinstance(leaf, Tensor) else ():
                if isinstance(size, torch.SymInt) and self._is_new(size.node.expr):
                    self._environment = size.node.shape_env
                    if _is_long(size.node.expr):
                        raise GossamerError(f"the export needs a size that is a long expression: {size}")
        return result

    def _is_new(self, expression: Any) -> bool:
        before = len(self._checked)
        self._checked.add(expression)
        return len(self._checked) > before


def _is_long(size: Any) -> bool:
    """Whether the exporter takes long to reason about a size: soonest if it is divided by one that is symbolic too."""
    from torch.utils._sympy.functions import FloorDiv  # slow to import; an export does it anyway

    divided = any(quotient.args[1].free_symbols for quotient in size.atoms(FloorDiv))
    return bool(size.count_ops() > (_LONGEST_QUOTIENT if divided else _LONGEST_SIZE))


def _refuses(guard: Any, environment: Any, sizes: Mapping[int, int]) -> bool:
    """Whether a guard is false at other sizes than those of the example."""
    hints = {symbol: environment.backed_var_to_val.get(symbol) for symbol in guard.free_symbols}
    values = {symbol: sizes.get(int(hint)) for symbol, hint in hints.items() if hint is not None}
    return len(values) == len(hints) and None not in values.values() and guard.subs(values) == False  # noqa: E712


def _other_sizes(call: Call, other: Call) -> dict[int, int]:
    """The sizes of a call with those that the other one has in their place; no sizes that have several."""
    tensors = zip(call.tensors(), other.tensors(), strict=True)
    pairs = {pair for own, new in tensors for pair in zip(own.shape, new.shape, strict=True)}
    changed = {pair for pair in pairs if pair[0] != pair[1]}
    return {size: new for size, new in changed if sum(pair[0] == size for pair in changed) == 1}
