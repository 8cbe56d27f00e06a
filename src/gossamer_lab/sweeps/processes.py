"""Parallel tasks in single-threaded worker processes that never outlive their parent."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import queue
import signal
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

import torch

from gossamer.errors import GossamerError

__all__ = ["OnProgress", "run_in_processes", "run_tasks"]

OnProgress = Callable[[str], None]
"""Called in the parent process with each progress message of a task."""

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")
_Work = Callable[[_Task, OnProgress], _Result]


def run_in_processes(
    work: _Work[_Task, _Result], tasks: Iterable[_Task], workers: int, on_progress: OnProgress
) -> Iterator[_Result]:
    """Yield the results of all tasks in the order of completion; see `run_tasks`."""
    for _, result in run_tasks(work, partial(next, iter(tasks), None), workers, on_progress):
        yield result


def run_tasks(
    work: _Work[_Task, _Result],
    next_task: Callable[[], _Task | None],
    workers: int,
    on_progress: OnProgress = lambda message: None,
) -> Iterator[tuple[_Task, _Result]]:
    """Yield each task with its result, in the order of completion.

    The first error stops all workers. No worker outlives the iterator or the process that runs it.

    Args:
        work: Function of a task and an `OnProgress` callback; pickled.
        next_task: Called when a worker is idle. Returns None if there is no task for now; it is called again after the
            next result.
        workers: Maximum number of processes, each with one thread.
        on_progress: Receives the progress messages of the tasks.

    Raises:
        GossamerError: If `work` raised an exception, or a worker was killed.
    """
    pickled = pickle.dumps(work)
    started: list[_Worker[Any, Any]] = []
    idle: list[_Worker[Any, Any]] = []
    busy: dict[Connection, tuple[_Worker[Any, Any], _Task]] = {}
    try:
        while True:
            while (idle or len(started) < workers) and (task := next_task()) is not None:
                if not idle:
                    started.append(_Worker(pickled))
                    started[-1].start()
                    idle.append(started[-1])
                worker = idle.pop()
                busy[worker.connection] = (worker, task)
                worker.send(task)
            if not busy:
                break
            for connection in [each for each in wait(list(busy)) if isinstance(each, Connection)]:
                worker, task = busy[connection]
                message = worker.receive()
                if isinstance(message, _Message):
                    on_progress(message.text)
                elif isinstance(message, _Raised):
                    raise message.error
                else:
                    del busy[connection]
                    idle.append(worker)
                    yield task, message.result
        for worker in started:
            worker.stop()
    except BaseException:  # including KeyboardInterrupt
        for worker in started:
            worker.kill()
        raise
    finally:
        for worker in started:
            worker.join()


@dataclass(frozen=True)
class _Message:
    """A progress message."""

    text: str


@dataclass(frozen=True)
class _Done(Generic[_Result]):
    """The result of a task."""

    result: _Result


@dataclass(frozen=True)
class _Raised:
    """The exception of a task."""

    error: GossamerError


class _Worker(Generic[_Task, _Result]):
    """The parent's side of a worker: it sends one task, then receives messages, the last with the result.

    Args:
        work: The pickled function of a task.
    """

    def __init__(self, work: bytes) -> None:
        self.connection, self._theirs = multiprocessing.Pipe()
        # Spawned, because torch's threads do not survive a fork.
        self._process = multiprocessing.get_context("spawn").Process(target=_work, args=(self._theirs, work))

    def start(self) -> None:
        """Start the process."""
        with _one_thread(), _ignored_interrupts():
            self._process.start()
        self._theirs.close()  # otherwise the parent would not notice that the worker died

    def send(self, task: _Task) -> None:
        """Send a task."""
        try:
            self.connection.send(task)
        except OSError:
            raise self._died() from None

    def receive(self) -> _Message | _Done[_Result] | _Raised:
        """Wait for the next message."""
        try:
            message: _Message | _Done[_Result] | _Raised = self.connection.recv()
        except (EOFError, OSError):
            raise self._died() from None
        return message

    def stop(self) -> None:
        """Ask the worker to exit."""
        with suppress(OSError):  # it has exited already
            self.connection.send(None)

    def kill(self) -> None:
        """Kill the worker, if it was started."""
        if self._process.pid is not None:
            self._process.kill()

    def join(self) -> None:
        """Wait until the worker has exited."""
        if self._process.pid is not None:
            self._process.join()
        self.connection.close()

    def _died(self) -> GossamerError:
        self._process.join()
        return GossamerError(
            f"A worker process exited unexpectedly with code {self._process.exitcode} (negative: killed by that "
            "signal). Finished work is kept; run the command again to continue."
        )


def _work(connection: Connection, pickled: bytes) -> None:
    """Run tasks until the parent sends None or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    tasks: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(connection, tasks), daemon=True).start()
    try:
        work = pickle.loads(pickled)
        # Unpickled in this thread: concurrent imports of the same packages in two threads can fail.
        while (task := pickle.loads(tasks.get())) is not None:
            connection.send(_Done(work(task, lambda text: connection.send(_Message(text)))))
    except GossamerError as error:
        connection.send(_Raised(error))
    except Exception:
        connection.send(_Raised(GossamerError(f"A worker process failed.\n{traceback.format_exc()}")))


def _listen(connection: Connection, tasks: queue.SimpleQueue[bytes]) -> None:
    """Queue what the parent sends; exit when the parent dies, which closes the connection."""
    while True:
        try:
            tasks.put(connection.recv_bytes())
        except (EOFError, OSError):
            os._exit(1)  # the other thread may be in the middle of a long task


@contextmanager
def _one_thread() -> Iterator[None]:
    """Set OMP_NUM_THREADS=1 for processes started inside; torch reads it on import."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


@contextmanager
def _ignored_interrupts() -> Iterator[None]:
    """Let processes started inside ignore Ctrl-C, which a terminal sends to them as well: the parent stops them."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set signal handlers
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
