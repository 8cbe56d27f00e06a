"""The proximal step after every step of an optimizer."""

from gossamer.proximal.attach import Compile, Metric, StepSize, attach, attached
from gossamer.proximal.averages import copy_zeros
from gossamer.proximal.handle import ProximalStep
from gossamer.proximal.path import Path, PathPoint
from gossamer.proximal.schedules import Schedule, constant, warm_up
from gossamer.proximal.watch import SparsityWarning

__all__ = [
    "Compile",
    "Metric",
    "Path",
    "PathPoint",
    "ProximalStep",
    "Schedule",
    "SparsityWarning",
    "StepSize",
    "attach",
    "attached",
    "constant",
    "copy_zeros",
    "warm_up",
]
