"""Several pieces of work at once, each in a process of one thread, that tell how far they are."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from typing import TypeVar

import torch

__all__ = ["Tell", "in_processes"]

Tell = Callable[[str], None]

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


def in_processes(
    work: Callable[[_Task, Tell], _Result], tasks: Sequence[_Task], workers: int, tell: Tell
) -> Iterator[_Result]:
    """Yield the results of all tasks as they come; what ``work`` tells on the way is handed to ``tell``.

    The first error ends everything. The processes do not outlive this one.
    """
    context = get_context("spawn")  # torch's threads do not survive a fork
    told: SimpleQueue[str | None] = context.SimpleQueue()
    listener = threading.Thread(target=_hand_on, args=(told, tell))
    listener.start()
    pool = ProcessPoolExecutor(min(workers, len(tasks)) or 1, context, _start_worker, (told, os.getpid()))
    try:
        for future in as_completed([pool.submit(_do, work, task) for task in tasks]):
            yield future.result()
    except BaseException:
        for process in list((pool._processes or {}).values()):  # else a long task would have to end first
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        told.put(None)
        listener.join()


def _hand_on(told: SimpleQueue[str | None], tell: Tell) -> None:
    while (text := told.get()) is not None:
        tell(text)


# The way back from a worker to the process that started it, set when the worker starts.
_told: SimpleQueue[str | None] | None = None


def _start_worker(told: SimpleQueue[str | None], parent: int) -> None:
    global _told
    _told = told
    torch.set_num_threads(1)
    threading.Thread(target=_die_with, args=(parent,), daemon=True).start()


def _die_with(parent: int) -> None:
    """End this process when the one that started it is gone, so that nobody works for no one."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _do(work: Callable[[_Task, Tell], _Result], task: _Task) -> _Result:
    assert _told is not None  # set by `_start_worker`
    return work(task, _told.put)
