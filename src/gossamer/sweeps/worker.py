"""A process that tries points, one after the other, and lives no longer than the process that started it."""

from __future__ import annotations

import math
import multiprocessing
import os
import pickle
import queue
import signal
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection

import torch

from gossamer.errors import GossamerError
from gossamer.sweeps.study import NoValueError, Objective

__all__ = ["Crash", "Failure", "Outcome", "Success", "Worker"]


@dataclass(frozen=True)
class Success:
    """The objective has a value."""

    value: float
    figures: dict[str, float]
    seconds: float


@dataclass(frozen=True)
class Failure:
    """The objective says that the point has no value."""

    reason: str
    seconds: float


@dataclass(frozen=True)
class Crash:
    """The objective raised what it should not; ``text`` is the traceback."""

    text: str


Outcome = Success | Failure | Crash


Task = tuple[int, dict[str, float]]


class Worker:
    """The parent's side of a worker: one point goes in, then one outcome comes out.

    Args:
        objectives: The pickled sequence of objectives that points are tried on.
    """

    def __init__(self, objectives: bytes) -> None:
        self.connection, self._theirs = multiprocessing.Pipe()
        # Spawned, not forked: torch's threads do not survive a fork.
        self._process = multiprocessing.get_context("spawn").Process(target=_work, args=(self._theirs, objectives))

    def start(self) -> None:
        """Start the process."""
        with _one_thread(), _deaf_to_interrupts():
            self._process.start()
        self._theirs.close()  # the worker has its own; with this one open its death would go unnoticed

    def send(self, objective: int, point: dict[str, float]) -> None:
        """Give the worker a point to try on the objective with this index."""
        try:
            self.connection.send((objective, point))
        except OSError:
            raise self._died() from None

    def receive(self) -> Outcome:
        """Wait for the outcome of the point."""
        try:
            outcome: Outcome = self.connection.recv()
        except (EOFError, OSError):
            raise self._died() from None
        return outcome

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
            f"A worker of the sweep ended by itself with exit code {self._process.exitcode} (negative: the signal that "
            "killed it). Finished trials are kept; start the sweep again to go on."
        )


def _work(connection: Connection, objectives: bytes) -> None:
    """Try the points that come until the parent has no more, or is dead."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(connection, tasks), daemon=True).start()
    try:
        known: Sequence[Objective] = pickle.loads(objectives)
    except Exception:
        connection.send(Crash(traceback.format_exc()))
        return
    while (task := tasks.get()) is not None:
        objective, point = task
        connection.send(_try(known[objective], point))


def _listen(connection: Connection, tasks: queue.SimpleQueue[Task | None]) -> None:
    """Hand on what the parent sends. The system closes the connection of a parent that dies, however it dies."""
    task: Task | None = (0, {})
    while task is not None:
        try:
            task = connection.recv()
        except (EOFError, OSError):
            os._exit(1)  # the other thread may be hours deep in an objective
        tasks.put(task)


def _try(objective: Objective, point: dict[str, float]) -> Outcome:
    begin = time.perf_counter()
    try:
        value, figures = objective(dict(point))
        value = float(value)
        figures = {str(name): float(figure) for name, figure in figures.items()}
    except NoValueError as error:
        return Failure(str(error), time.perf_counter() - begin)
    except Exception:
        return Crash(traceback.format_exc())
    seconds = time.perf_counter() - begin
    for name, number in {**figures, "value": value}.items():
        if not math.isfinite(number):
            return Failure(f"{name} is {number}", seconds)
    return Success(value, figures, seconds)


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
