"""Objectives in a module of their own, because worker processes import them by name."""

from __future__ import annotations

import math
import os
import threading
from dataclasses import dataclass
from pathlib import Path

import torch

from gossamer import GossamerError
from gossamer_lab.sweeps import NoValueError


def quadratic(parameters):
    x, y = parameters["x"], parameters["y"]
    return (x - 2) ** 2 + (y + 1) ** 2, {"sum": x + y}


def threads(parameters):
    return 0.0, {"torch": torch.get_num_threads(), "environment": int(os.environ["OMP_NUM_THREADS"])}


def diverging(parameters):
    if parameters["x"] == 1:
        raise NoValueError("the loss is gone")
    return (math.nan if parameters["x"] == 2 else parameters["x"]), {}


def broken(parameters):
    raise ZeroDivisionError("a bug")


def without_figures(parameters):
    return 1.0


class Unloadable:
    def __reduce__(self):
        return math.sqrt, (-1.0,)


@dataclass(frozen=True)
class Blocking:
    """Notes every call in `folder`; from `x == at` on, says so and never ends, unless a file `go` is there."""

    folder: Path
    at: float

    def __call__(self, parameters):
        x = parameters["x"]
        with (self.folder / "calls").open("a") as file:
            file.write(f"{x}\n")
        if x >= self.at and not (self.folder / "go").exists():
            # Open as long as this process lives.
            os.write(os.open(self.folder / "alive", os.O_WRONLY), f"{os.getpid()}\n".encode())
            threading.Event().wait()
        return x * x, {}


class RefusedError(GossamerError):
    """An error with a name of its own."""


def square(number, on_progress):
    on_progress(f"squaring {number}")
    return number**2


def refuse(number, on_progress):
    if number == 2:
        raise RefusedError("not 2")
    return number


def stumble(number, on_progress):
    return 1 / (number - 1)


def wait_for_ever(number, on_progress):
    on_progress(str(os.getpid()))
    threading.Event().wait()


def wait_after_the_first(number, on_progress):
    if number == 1:
        on_progress(str(os.getpid()))
        return number
    return wait_for_ever(number, on_progress)
