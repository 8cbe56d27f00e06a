"""Worker processes that start quickly: they are forks of one process, which imports what all of them need.

It imports while the command itself does, and has one thread, so that nothing is lost in a fork. Where a fork is not
safe after an import of torch, each worker is a new process that imports on its own.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from multiprocessing.context import BaseContext

__all__ = ["prepare_workers", "worker_context"]

# What a worker imports when it begins: the search and its database, PyTorch's optimizers.
_NEEDED = ["gossamer_lab.sweeps.training_trials", "alembic.command", "torch._dynamo"]


def prepare_workers() -> None:
    """Begin to import what the workers need, in another process. Ends with this process."""
    if not _forks():
        return
    from multiprocessing.forkserver import ensure_running

    os.environ["OMP_NUM_THREADS"] = "1"  # read by libraries that start threads when they are imported
    multiprocessing.set_forkserver_preload(_NEEDED)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # this process stops the workers
    try:
        ensure_running()
    finally:
        signal.signal(signal.SIGINT, before)


def worker_context() -> BaseContext:
    """How workers are started."""
    return multiprocessing.get_context("forkserver" if _forks() else "spawn")


def _forks() -> bool:
    return sys.platform == "linux"
