"""Whom to blame for a forward that fails: the innermost module of the user that was entered and not left."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

__all__ = ["Blame"]


class Blame:
    """A context in which forwards run. Afterwards `path` is the module whose forward failed, or None.

    A layer of PyTorch fails because of what it is called with, so the module that calls it is to blame.
    """

    path: str | None = None

    def __enter__(self) -> Blame:
        self._entered: list[nn.Module] = []
        self._handles = [
            register_module_forward_pre_hook(lambda module, _: self._entered.append(module)),
            register_module_forward_hook(self._leave),
        ]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for handle in self._handles:
            handle.remove()
        if not self._entered:
            return
        paths = {id(module): path for path, module in self._entered[0].named_modules()}
        inner = next((m for m in reversed(self._entered) if not _is_torch(m) and id(m) in paths), None)
        self.path = None if inner is None else paths[id(inner)]

    def _leave(self, module: nn.Module, *_: Any) -> None:
        while self._entered and self._entered.pop() is not module:
            pass  # a forward that failed inside and was caught


def _is_torch(module: nn.Module) -> bool:
    return type(module).__module__.startswith("torch.")
