"""Calls in a fork of this process: what goes wrong there, or takes too long, ends nothing else.

A fork has the caches of the process at the moment in which it was made, so that times of several forks compare.
"""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

__all__ = ["Fork"]


class Fork:
    """A fork of this process as it is now, which waits for the arguments of one call of a function."""

    def __init__(self, function: Callable[..., Any], seconds: float) -> None:
        gc.freeze()  # a collection in the fork would copy the memory of all objects that are there already
        context = multiprocessing.get_context("fork")
        self._seconds = seconds
        self._connection, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other, function))
        self._process.start()
        other.close()

    def __call__(self, *arguments: Any) -> Any:
        """The result of the call; raises an error with the message of the one that the function raised."""
        try:
            self._connection.send(arguments)
            if not self._connection.poll(self._seconds):
                raise TimeoutError(f"longer than {self._seconds} s")
            failed, result = self._connection.recv()
        except (EOFError, BrokenPipeError) as error:
            raise ChildProcessError("the process ended without a result") from error
        finally:
            self.close()
        if failed:
            raise RuntimeError(result)
        return result

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()


def _serve(connection: Connection, function: Callable[..., Any]) -> None:
    arguments = connection.recv()
    try:
        connection.send((False, function(*arguments)))
    except Exception as error:
        connection.send((True, f"{type(error).__name__}: {error}"[:300]))
