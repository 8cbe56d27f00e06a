"""Whether a forward takes the same branches at two sizes of its inputs.

A branch on a size becomes a guard of an export with symbolic sizes: its graph refuses the sizes at which the forward
does something else. To see that before such an export, which takes several times as long as a plain one, the forward
runs at both sizes, and the functions of PyTorch that it calls are compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from gossamer.example import Call, evaluating, restoring

__all__ = ["same_branches"]


def same_branches(model: nn.Module, call: Call, other: Call) -> bool:
    """Whether the forward calls the same functions in the same order for both calls, in evaluation mode."""
    return _functions(model, call) == _functions(model, other)


def _functions(model: nn.Module, call: Call) -> list[Callable[..., Any]]:
    recorder = _Recorder()
    with evaluating(model), restoring(model), recorder:
        call.run(model)
    return recorder.functions


class _Recorder(TorchFunctionMode):
    """Records the functions that return tensors; reading a size is none of them."""

    def __init__(self) -> None:
        super().__init__()
        self.functions: list[Callable[..., Any]] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        result = func(*args, **(kwargs or {}))
        if any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(result)):
            self.functions.append(func)
        return result
