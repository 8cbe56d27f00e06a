"""Whether every process has the native kernel: one without a compiler would round otherwise than the others.

A process says that it has none by a mark in the store of the process group, and whoever has one looks for the mark at
its first proximal step. Nothing is waited for, since a process may well train on its own. Where processes train one
model together, they all have attached before one of them takes a step: the gradients of the step come from all of them.
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

__all__ = ["is_missing_somewhere", "say_missing"]

_MARK = "gossamer: a process has no kernel"


def say_missing() -> None:
    """Tell the other processes, if there are any, that this one has no kernel."""
    if (store := _store()) is not None:
        store.set(_MARK, "1")


def is_missing_somewhere() -> bool:
    """Whether a process has said so."""
    store = _store()
    return store is not None and bool(store.check([_MARK]))


def _store() -> Any:
    """What all processes can read; None where there is one process, or MPI, which has no store."""
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return None
    return dist.distributed_c10d._get_default_store()
