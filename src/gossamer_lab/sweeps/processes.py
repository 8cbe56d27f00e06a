"""Several pieces of work at once, each in a process of one thread that lives no longer than the one that started it."""

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

__all__ = ["Tell", "in_processes", "work_off"]

Tell = Callable[[str], None]

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")
_Work = Callable[[_Task, Tell], _Result]


def in_processes(work: _Work[_Task, _Result], tasks: Iterable[_Task], workers: int, tell: Tell) -> Iterator[_Result]:
    """Yield the results of all tasks as they come; see :func:`work_off`."""
    for _, result in work_off(work, partial(next, iter(tasks), None), workers, tell):
        yield result


def work_off(
    work: _Work[_Task, _Result], next_task: Callable[[], _Task | None], workers: int, tell: Tell = lambda text: None
) -> Iterator[tuple[_Task, _Result]]:
    """Yield each task with its result, as they come.

    The first error ends everything, and no process outlives the iterator or the process that runs it.

    Args:
        work: Does a task; what it tells on the way is handed to ``tell``, in this process.
        next_task: Asked when a process has nothing to do. None when there is nothing to do now; it is asked again when
            a result has come.
        workers: The most processes at a time, each with one thread.
        tell: Is told.

    Raises:
        GossamerError: When ``work`` raised it, or anything else, or a process was killed.
    """
    pickled = pickle.dumps(work)
    crew: list[_Worker[Any, Any]] = []
    idle: list[_Worker[Any, Any]] = []
    busy: dict[Connection, tuple[_Worker[Any, Any], _Task]] = {}
    try:
        while True:
            while (idle or len(crew) < workers) and (task := next_task()) is not None:
                if not idle:
                    crew.append(_Worker(pickled))
                    crew[-1].start()
                    idle.append(crew[-1])
                worker = idle.pop()
                busy[worker.connection] = (worker, task)
                worker.send(task)
            if not busy:
                break
            for connection in [each for each in wait(list(busy)) if isinstance(each, Connection)]:
                worker, task = busy[connection]
                message = worker.receive()
                if isinstance(message, _Told):
                    tell(message.text)
                elif isinstance(message, _Raised):
                    raise message.error
                else:
                    del busy[connection]
                    idle.append(worker)
                    yield task, message.result
        for worker in crew:
            worker.dismiss()
    except BaseException:  # Ctrl-C among them
        for worker in crew:
            worker.kill()
        raise
    finally:
        for worker in crew:
            worker.join()


@dataclass(frozen=True)
class _Told:
    """Something on the way."""

    text: str


@dataclass(frozen=True)
class _Done(Generic[_Result]):
    """The task is done."""

    result: _Result


@dataclass(frozen=True)
class _Raised:
    """The work raised."""

    error: GossamerError


class _Worker(Generic[_Task, _Result]):
    """The parent's side of a worker: one task goes in, then messages come out, the last with the result.

    Args:
        work: What is done with a task, pickled.
    """

    def __init__(self, work: bytes) -> None:
        self.connection, self._theirs = multiprocessing.Pipe()
        # Spawned, not forked: torch's threads do not survive a fork.
        self._process = multiprocessing.get_context("spawn").Process(target=_work, args=(self._theirs, work))

    def start(self) -> None:
        """Start the process."""
        with _one_thread(), _deaf_to_interrupts():
            self._process.start()
        self._theirs.close()  # the worker has its own; with this one open its death would go unnoticed

    def send(self, task: _Task) -> None:
        """Give the worker something to do."""
        try:
            self.connection.send(task)
        except OSError:
            raise self._died() from None

    def receive(self) -> _Told | _Done[_Result] | _Raised:
        """Wait for what the worker has to say."""
        try:
            message: _Told | _Done[_Result] | _Raised = self.connection.recv()
        except (EOFError, OSError):
            raise self._died() from None
        return message

    def dismiss(self) -> None:
        """Let the worker end; it has nothing left to do."""
        with suppress(OSError):  # it has ended already
            self.connection.send(None)

    def kill(self) -> None:
        """End the worker whatever it does, if it was started at all."""
        if self._process.pid is not None:
            self._process.kill()

    def join(self) -> None:
        """Wait until the worker has ended."""
        if self._process.pid is not None:
            self._process.join()
        self.connection.close()

    def _died(self) -> GossamerError:
        self._process.join()
        return GossamerError(
            f"A worker process ended by itself with exit code {self._process.exitcode} (negative: the signal that "
            "killed it). What is finished is kept; start again to go on."
        )


def _work(connection: Connection, pickled: bytes) -> None:
    """Do the tasks that come until the parent has no more, or is dead."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    tasks: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(connection, tasks), daemon=True).start()
    try:
        work = pickle.loads(pickled)
        # Unpickled here, and not by the other thread: two threads that import the same packages can trip each other up.
        while (task := pickle.loads(tasks.get())) is not None:
            connection.send(_Done(work(task, lambda text: connection.send(_Told(text)))))
    except GossamerError as error:
        connection.send(_Raised(error))
    except Exception:
        connection.send(_Raised(GossamerError(f"A worker process failed.\n{traceback.format_exc()}")))


def _listen(connection: Connection, tasks: queue.SimpleQueue[bytes]) -> None:
    """Hand on what the parent sends. The system closes the connection of a parent that dies, however it dies."""
    while True:
        try:
            tasks.put(connection.recv_bytes())
        except (EOFError, OSError):
            os._exit(1)  # the other thread may be hours deep in its work


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let processes that start inside read that they have one thread; torch looks when it is imported."""
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
def _deaf_to_interrupts() -> Iterator[None]:
    """Let processes that start inside ignore Ctrl-C, which a terminal sends to them, too: the parent ends them."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may say how signals are handled
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
